"""The library: imports are all or nothing, changes are generations, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from metaclaw_langgraph.errors import ConflictError, NotFoundError, StoreError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.skills.block import too_big
from metaclaw_langgraph.skills.embedding import vector_space
from metaclaw_langgraph.skills.index import open_index, rebuild_index
from metaclaw_langgraph.skills.library import SkillLibrary
from tests.skills.conftest import (
    NAMESPACE,
    Retrieve,
    WordEmbedder,
    put,
    skill,
    write_skill,
)


def test_an_import_adds_updates_and_leaves_alone(tmp_path: Path, library: SkillLibrary) -> None:
    folder = tmp_path / "skills"
    write_skill(folder, "a")
    write_skill(folder, "b")
    first = library.import_skills(folder)
    assert (first.added, first.generation, first.refused) == (("a@1", "b@1"), 1, ())
    again = library.import_skills(folder)
    assert (again.unchanged, again.generation) == (("a@1", "b@1"), 1)
    write_skill(folder, "b", body="Do it better.")
    write_skill(folder, "c")
    second = library.import_skills(folder)
    assert (second.added, second.updated, second.unchanged) == (("c@1",), ("b@2",), ("a@1",))
    assert second.generation == 2
    assert [one.id for one in library.active()] == ["a@1", "b@2", "c@1"]
    assert [len(record.added) for record in library.history()] == [2, 2]


def test_one_bad_file_stops_the_import(tmp_path: Path, library: SkillLibrary) -> None:
    write_skill(tmp_path / "s", "good")
    bad = write_skill(tmp_path / "s", "bad", "---\nname: bad\n---\nx")
    report = library.import_skills(tmp_path / "s")
    assert [(one.path, one.line) for one in report.refused] == [(str(bad), 1)]
    assert (report.added, report.generation, library.active()) == ((), 0, [])


def test_keep_going_imports_the_rest(tmp_path: Path, library: SkillLibrary) -> None:
    write_skill(tmp_path / "s", "good")
    write_skill(tmp_path / "s", "bad", "no front matter")
    report = library.import_skills(tmp_path / "s", keep_going=True)
    assert (report.added, len(report.refused)) == (("good@1",), 1)


def test_what_an_import_leaves_out_is_reported(tmp_path: Path, library: SkillLibrary) -> None:
    folder = tmp_path / "outer"
    write_skill(tmp_path, "outer")
    write_skill(folder, "inner")
    write_skill(folder, "plain")
    for name in ("scripts/run.py", "notes.md", ".git/config", ".hidden", "inner/a/b.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    report = library.import_skills(folder)
    assert len(report.added) == 3
    assert [(one.name, one.files) for one in report.left_out] == [
        ("outer", ("notes.md", "scripts/run.py")),
        ("inner", ("a/b.txt",)),
    ]


def test_too_big_is_what_retrieval_refuses(library: SkillLibrary, retriever: Retrieve) -> None:
    cake = skill("bake-cake", body="Stir. <skill> " * 50)
    generation = put(library, cake)
    (alone,) = too_big([cake], generation, 1)
    exact = retriever(token_budget=alone.tokens).retrieve("bake cake")
    below = retriever(token_budget=alone.tokens - 1).retrieve("bake cake")
    assert [hit.injected for hit in (*exact.hits, *below.hits)] == [True, False]
    assert too_big([cake], generation, alone.tokens) == []


def test_two_files_with_one_name_are_refused(tmp_path: Path, library: SkillLibrary) -> None:
    first = write_skill(tmp_path / "s" / "x", "twin")
    second = write_skill(tmp_path / "s" / "y", "twin", body="Else.")
    [refusal] = library.import_skills(tmp_path / "s").refused
    assert refusal.path == str(second)
    assert str(first) in refusal.problem


def test_a_secret_is_refused_by_line_and_stored_nowhere(
    tmp_path: Path, ledger: Ledger, library: SkillLibrary
) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    path = write_skill(tmp_path / "s", "push-code", body=f"Use this:\n{secret}\n")
    [refusal] = library.import_skills(tmp_path / "s", keep_going=True).refused
    assert (refusal.path, refusal.line) == (str(path), 7)
    assert "secret" in refusal.problem
    assert secret not in refusal.problem
    ledger.close()
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and file != path]
    assert not [file for file in kept if secret.encode() in file.read_bytes()]


def test_an_import_follows_a_writer_who_was_quicker(
    ledger: Ledger, library: SkillLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, calls = ledger.commit_generation, []

    def late(*arguments: object, **named: object) -> int:
        if not calls:
            calls.append(1)
            monkeypatch.setattr(ledger, "commit_generation", commit)
            put(library, skill("other"))
        return commit(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger, "commit_generation", late)
    assert put(library, skill("mine")) == 2
    assert [one.id for one in library.active()] == ["mine@1", "other@1"]


def test_endless_conflicts_are_told(
    ledger: Ledger, library: SkillLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object, **named: object) -> int:
        raise ConflictError("moved")

    monkeypatch.setattr(ledger, "commit_generation", never)
    with pytest.raises(ConflictError):
        put(library, skill("mine"))


def test_a_version_that_was_staged_and_never_used_is_taken_up(
    ledger: Ledger, library: SkillLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "commit_generation", lambda *a, **k: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            put(library, skill("mine"))
    put(library, skill("mine"))
    assert [one.id for one in library.active()] == ["mine@1"]


def test_show_gives_the_active_version_or_the_one_asked_for(library: SkillLibrary) -> None:
    put(library, skill("a", body="One."))
    put(library, skill("a", body="Two."))
    library.rollback(1)
    assert library.show("a").skill.body == "One."
    assert library.show("a", 2).skill.body == "Two."
    library.retire(["a"])
    assert library.show("a").skill.body == "Two."
    with pytest.raises(NotFoundError, match="it has 1, 2"):
        library.show("a", 3)
    with pytest.raises(NotFoundError):
        library.show("b")


def test_an_export_is_what_was_imported(tmp_path: Path, library: SkillLibrary) -> None:
    write_skill(tmp_path / "in", "a", body="  Code.\n\nText with ümlauts.")
    write_skill(tmp_path / "in", "b")
    library.import_skills(tmp_path / "in")
    written = library.export(tmp_path / "out")
    assert [path.parent.name for path in written] == ["a", "b"]
    assert library.import_skills(tmp_path / "out").unchanged == ("a@1", "b@1")
    assert library.export(tmp_path / "one", ["b"]) == [tmp_path / "one" / "b" / "SKILL.md"]
    with pytest.raises(NotFoundError, match="'c'"):
        library.export(tmp_path / "none", ["b", "c"])
    assert not (tmp_path / "none").exists()


def test_an_export_does_not_overwrite_other_texts(tmp_path: Path, library: SkillLibrary) -> None:
    put(library, skill("a"), skill("b"))
    changed = write_skill(tmp_path / "out", "b", body="My own notes.")
    before = changed.read_text()
    with pytest.raises(StoreError, match="--force"):
        library.export(tmp_path / "out")
    assert changed.read_text() == before
    assert not (tmp_path / "out" / "a").exists()
    library.export(tmp_path / "out", force=True)
    assert changed.read_text() != before
    library.export(tmp_path / "out")


@pytest.mark.parametrize("force", [True, False])
def test_an_export_onto_something_else_than_a_file_is_refused(
    tmp_path: Path, library: SkillLibrary, force: bool
) -> None:
    put(library, skill("a"), skill("b"))
    (tmp_path / "out" / "b" / "SKILL.md").mkdir(parents=True)
    with pytest.raises(StoreError, match="is a folder; move it away"):
        library.export(tmp_path / "out", force=force)
    assert not (tmp_path / "out" / "a").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        library.export(tmp_path / "file", force=force)


def test_removing_and_rolling_back(library: SkillLibrary) -> None:
    put(library, skill("a"), skill("b"))
    assert library.retire(["a", "a"]) == 2
    assert [one.id for one in library.active()] == ["b@1"]
    with pytest.raises(NotFoundError, match="no active skill 'a'"):
        library.retire(["b", "a"])
    assert library.rollback(1) == 3
    assert [one.id for one in library.active()] == ["a@1", "b@1"]
    with pytest.raises(NotFoundError, match="no generation 9"):
        library.rollback(9)


def test_a_library_with_an_index_fills_it_before_the_pointer_moves(
    tmp_path: Path, ledger: Ledger, embedder: WordEmbedder, library: SkillLibrary
) -> None:
    put(library, skill("a"))
    index = open_index(ledger, embedder, NAMESPACE, tmp_path)
    index.sync(1)
    with_index = SkillLibrary(
        ledger, lambda: embedder, NAMESPACE, redactor=library._redactor, index=index
    )
    seen: list[set[str]] = []
    commit = ledger.commit_generation

    def watch(*arguments: object, **named: object) -> int:
        assert index._store is not None
        seen.append(index._store.ids())
        return commit(*arguments, **named)  # type: ignore[arg-type]

    ledger.commit_generation = watch  # type: ignore[method-assign]
    put(with_index, skill("b"))
    assert seen == [{"a@1", "b@1"}]
    assert index.snapshot.generation == 2
    index.close()


def test_reindex_mends_a_broken_chroma_folder(
    tmp_path: Path,
    ledger: Ledger,
    embedder: WordEmbedder,
    library: SkillLibrary,
    retriever: Retrieve,
) -> None:
    put(library, skill("bake-bread"), skill("undo-commit"))
    one = retriever()
    expected = one.retrieve("bake bread").hits
    with pytest.raises(StoreError, match="stop it to rebuild"):
        rebuild_index(ledger, embedder, NAMESPACE, tmp_path)
    one.close()
    (tmp_path / "chroma" / "chroma.sqlite3").write_bytes(b"not a database" * 100)
    broken = retriever()
    with pytest.raises(StoreError, match="metaclaw skills reindex"):
        broken.retrieve("bake bread")
    broken.close()
    assert rebuild_index(ledger, embedder, NAMESPACE, tmp_path) == 2
    hits = retriever().retrieve("bake bread").hits
    assert [hit.id for hit in hits] == [hit.id for hit in expected]


def test_vectors_that_the_ledger_lacks_are_made(
    ledger: Ledger, library: SkillLibrary, retriever: Retrieve
) -> None:
    put(library, skill("bake-bread"))
    other = WordEmbedder("words-9", salt="9")
    assert ledger.vectors(NAMESPACE, ["bake-bread@1"], vector_space(other)) == {}
    assert retriever(other).retrieve("bake bread").hits[0].score > 0.5
    assert ledger.vectors(NAMESPACE, ["bake-bread@1"], vector_space(other)) != {}
