"""Skills: reading SKILL.md files, embedding them, indexing them and finding them for a task."""
