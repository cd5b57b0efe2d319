"""The skill library: what people and the learning loop do with skills.

Every change is one new generation, in the order that keeps runs consistent: versions and vectors
into the ledger, rows into the index, then the pointer. Nothing is changed when there is nothing
to change, or when a file is refused and the caller did not ask to keep going.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from metaclaw_langgraph.errors import ConflictError, NotFoundError, SkillFormatError, StoreError
from metaclaw_langgraph.ledger import (
    DraftDecision,
    Evolution,
    GenerationRecord,
    Ledger,
    NewSkill,
    Probation,
    SkillRecord,
)
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.embedding import Embedder, skill_text, vector_space
from metaclaw_langgraph.skills.format import (
    SKILL_FILE,
    find_skill_files,
    other_files,
    parse_skill,
    read_text,
    render_skill,
)
from metaclaw_langgraph.skills.index import SkillIndex
from metaclaw_langgraph.types import Json, Skill

__all__ = ["Change", "ImportReport", "LeftOut", "Record", "Refusal", "SkillLibrary"]

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Change:
    """What a change of the library did: ids by kind, and the generation after it."""

    added: tuple[str, ...]
    updated: tuple[str, ...]
    unchanged: tuple[str, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class Record:
    """What is stored in the same transaction as a new generation."""

    details: Mapping[str, Json] | None = None
    evolution: Evolution | None = None
    probation: Sequence[Probation] = ()
    closed: Sequence[Probation] = ()
    decided: DraftDecision | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A file that was not imported, and why."""

    path: str
    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The files of a skill's folder that were not imported: only its SKILL.md is."""

    name: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportReport(Change):
    """What an import did. Without `keep_going`, one refusal means that nothing was imported."""

    refused: tuple[Refusal, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


class SkillLibrary:
    """The skills of one namespace."""

    def __init__(
        self,
        ledger: Ledger,
        embedder: Callable[[], Embedder],
        namespace: str,
        *,
        redactor: Redactor,
        index: SkillIndex | None = None,
    ) -> None:
        self.namespace = namespace
        self._ledger = ledger
        self._embedder = embedder
        self._redactor = redactor
        self._index = index

    def import_skills(self, folder: Path, *, keep_going: bool = False) -> ImportReport:
        """Read all SKILL.md files in or below `folder` and make them active."""
        good, refused = self._read(find_skill_files(folder))
        if refused and not keep_going:
            generation = self._ledger.generation(self.namespace)
            return ImportReport((), (), (), generation, tuple(refused))
        skills = [skill for skill, _ in good]
        done = self.put(skills, reason=f"import of {folder.name or folder}", source="import")
        return ImportReport(
            done.added,
            done.updated,
            done.unchanged,
            done.generation,
            tuple(refused),
            tuple(_left_out(good)),
        )

    def put(
        self,
        skills: Sequence[Skill],
        *,
        reason: str,
        source: str,
        provenance: Json = None,
        retire: Collection[str] = (),
        expected: Mapping[str, str | None] | None = None,
        record: Callable[[Mapping[str, str]], Record] | None = None,
    ) -> Change:
        """Make these skills active, in place of the versions that have their names.

        Args:
            skills: Their versions are assigned here.
            reason: Why, for the record of generations.
            source: Who wrote them.
            provenance: What they were made from.
            retire: Names of skills that go in the same generation.
            expected: The live versions (None: no such skill) by name that the skills were made
                for; ConflictError when one of them is another one now.
            record: What else goes into the transaction, given the ids by name.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._put(skills, reason, source, provenance, retire, expected, record)
            except ConflictError:
                continue
        return self._put(skills, reason, source, provenance, retire, expected, record)

    def retire(self, names: Iterable[str], reason: str = "", record: Record | None = None) -> int:
        """Take skills out of the library; the new generation. Their versions stay on record."""
        generation = self._ledger.generation(self.namespace)
        wanted = list(dict.fromkeys(names))
        live = self._ledger.live_versions(self.namespace, wanted)
        for name in wanted:
            if name not in live:
                raise NotFoundError(f"no active skill {name!r} in namespace {self.namespace!r}")
        gone = [live[name].id for name in wanted]
        why = reason or f"{', '.join(wanted)} retired"
        return self._moved_to(self._commit(generation, (), gone, why, record or Record()))

    def withdraw(self, skill_id: str, reason: str, record: Record) -> int:
        """Take one live version out; the version that it had replaced comes back, if any."""
        generation = self._ledger.generation(self.namespace)
        before = self.replaced_by(skill_id)
        back = [] if before is None else [before]
        return self._moved_to(self._commit(generation, back, [skill_id], reason, record))

    def replaced_by(self, skill_id: str) -> str | None:
        """The version that a live version took the place of; NotFoundError when it is not live."""
        records = self._ledger.skill_history(self.namespace, skill_id.rpartition("@")[0])
        since = [
            interval.since
            for one in records
            for interval in one.intervals
            if one.skill.id == skill_id and interval.until is None
        ]
        if not since:
            raise NotFoundError(f"{skill_id} is not live in namespace {self.namespace!r}")
        before = [one.skill.id for one in records if since[0] in [i.until for i in one.intervals]]
        return before[0] if before else None

    def rollback(self, to: int) -> int:
        """A new generation with the skills of generation `to`; its number."""
        reason = f"rollback to generation {to}"
        return self._moved_to(self._ledger.rollback_generation(self.namespace, to, reason))

    def active(self) -> list[Skill]:
        """The skills of the current generation, by name."""
        return self._ledger.active_skills(self.namespace)

    def show(self, name: str, version: int | None = None) -> SkillRecord:
        """A version of a skill: the active one (or else the newest) when none is named."""
        records = self._ledger.skill_history(self.namespace, name)
        if version is None:
            live = [record for record in records if _is_live(record)]
            return (live or records)[-1]
        for record in records:
            if record.skill.version == version:
                return record
        known = ", ".join(str(record.skill.version) for record in records)
        raise NotFoundError(f"skill {name!r} has no version {version}; it has {known}")

    def export(self, folder: Path, names: Sequence[str] = (), *, force: bool = False) -> list[Path]:
        """Write active skills (all, or those named) as folders; the files written."""
        skills = {skill.name: skill for skill in self.active()}
        for name in names:
            if name not in skills:
                raise NotFoundError(f"no active skill {name!r} in namespace {self.namespace!r}")
        texts = {folder / name / SKILL_FILE: render_skill(skills[name]) for name in names or skills}
        _refuse_overwriting(texts, force=force)
        return [_write(path, text) for path, text in texts.items()]

    def history(self, limit: int = 50) -> list[GenerationRecord]:
        """The generations, newest first."""
        return self._ledger.generations(self.namespace, limit)

    def _read(self, paths: Sequence[Path]) -> tuple[list[tuple[Skill, Path]], list[Refusal]]:
        good: dict[str, tuple[Skill, Path]] = {}
        refused: list[Refusal] = []
        for path in paths:
            try:
                skill = self._read_one(path)
                if skill.name in good:
                    other = good[skill.name][1]
                    problem = f"the name {skill.name!r} is also in {other}; keep one of them"
                    raise SkillFormatError(str(path), 1, problem)
                good[skill.name] = (skill, path)
            except SkillFormatError as error:
                refused.append(Refusal(error.path, error.line, error.problem))
        return list(good.values()), refused

    def _read_one(self, path: Path) -> Skill:
        text = read_text(path)
        skill = parse_skill(text, path)
        for line, kind in self._redactor.find(text):
            raise SkillFormatError(
                str(path), line, f"looks like a secret ({kind}); remove it, skills go into prompts"
            )
        return skill

    def _put(
        self,
        skills: Sequence[Skill],
        reason: str,
        source: str,
        provenance: Json,
        retire: Collection[str],
        expected: Mapping[str, str | None] | None,
        record: Callable[[Mapping[str, str]], Record] | None,
    ) -> Change:
        generation = self._ledger.generation(self.namespace)
        names = [*(skill.name for skill in skills), *retire]
        active = self._ledger.live_versions(self.namespace, names)
        same = [active[s.name] for s in skills if s.name in active and _alike(s, active[s.name])]
        kept = {skill.name for skill in same}
        for name, id in (expected or {}).items():
            if name not in kept and (active[name].id if name in active else None) != id:
                raise ConflictError(f"skill {name!r} was changed while its next version was made")
        new = [self._numbered(skill) for skill in skills if skill.name not in kept]
        if new:
            self._stage(new, source, provenance)
            ids = {skill.name: skill.id for skill in [*new, *same]}
            gone = {*(skill.name for skill in new), *retire} & set(active)
            extra = record(ids) if record else Record()
            remove = [active[name].id for name in sorted(gone)]
            generation = self._commit(generation, [s.id for s in new], remove, reason, extra)
            self._moved_to(generation)
        return Change(
            added=tuple(skill.id for skill in new if skill.name not in active),
            updated=tuple(skill.id for skill in new if skill.name in active),
            unchanged=tuple(skill.id for skill in same),
            generation=generation,
        )

    def _commit(
        self, expected: int, add: Sequence[str], remove: Sequence[str], reason: str, extra: Record
    ) -> int:
        return self._ledger.commit_generation(
            self.namespace,
            expected=expected,
            add=add,
            remove=remove,
            reason=reason,
            details=extra.details,
            evolution=extra.evolution,
            probation=extra.probation,
            closed=extra.closed,
            decided=extra.decided,
        )

    def _stage(self, new: Sequence[Skill], source: str, provenance: Json) -> None:
        embedder = self._embedder()
        rows = embedder.embed_documents([skill_text(skill) for skill in new])
        vectors = {skill.id: rows[n].astype("<f4").tobytes() for n, skill in enumerate(new)}
        space = vector_space(embedder)
        self._ledger.stage_skills(
            self.namespace,
            [NewSkill(s, vectors[s.id], space, source, provenance) for s in new],
        )
        if self._index is not None:
            self._index.prepare(vectors)

    def _numbered(self, skill: Skill) -> Skill:
        """The skill with its version: the next one, unless it was staged before and not used."""
        latest = self._ledger.latest_version(self.namespace, skill.name)
        if latest:
            newest = self._ledger.skill_history(self.namespace, skill.name)[-1]
            if not newest.intervals and _alike(skill, newest.skill):
                return newest.skill
        return replace(skill, version=latest + 1)

    def _moved_to(self, generation: int) -> int:
        if self._index is not None:
            self._index.sync(generation)
        return generation


def _alike(one: Skill, other: Skill) -> bool:
    return replace(one, version=0) == replace(other, version=0)


def _is_live(record: SkillRecord) -> bool:
    return any(interval.until is None for interval in record.intervals)


def _left_out(skills: Iterable[tuple[Skill, Path]]) -> Iterator[LeftOut]:
    for skill, path in skills:
        files = other_files(path)
        if files:
            yield LeftOut(skill.name, tuple(files))


def _refuse_overwriting(texts: Mapping[Path, str], *, force: bool) -> None:
    for path, text in texts.items():
        try:
            if path.is_dir():
                raise StoreError(f"{path} is a folder; move it away, or export to another folder")
            differs = not force and path.exists() and path.read_bytes() != text.encode()
        except OSError as error:
            raise StoreError(
                f"{path} cannot be read: {error.strerror}; mend it, or export to another folder"
            ) from error
        if differs:
            raise StoreError(f"{path} exists with another text; use --force to overwrite it")


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    return path
