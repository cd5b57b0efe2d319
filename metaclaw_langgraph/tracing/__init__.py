"""What MLflow shows of it all, for people to read, and what they answer there.

The ledger is the record and also the queue: a trajectory is marked pending when it is stored, and
a helper process replays it into MLflow's own LangChain tracer. A process of its own, because
writing a trace costs tens of milliseconds of Python, MLflow's settings are global to a process,
and a server that does not answer must not be noticed by the user's runs.
"""
