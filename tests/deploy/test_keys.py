"""Certificates: who has none, another authority's or another node's is refused."""

import os
import stat

import pytest

from archipel.deploy import keys
from archipel.deploy.masked import PROOF
from archipel.deploy.real import RealWorld
from archipel.errors import BadInput


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("keys")
    assert keys.make(made, {"server": ["127.0.0.1"], "a": [], "b": []}) == ["server", "a", "b"]
    return made


def test_what_is_there_stays(folder):
    before = (folder / "a.pem").read_bytes()
    assert keys.make(folder, {"a": [], "c": []}) == ["c"]
    assert (folder / "a.pem").read_bytes() == before
    assert keys.check(folder, "c")


def test_private_keys_are_private(folder):
    for name in ("authority", "a"):
        assert stat.S_IMODE(os.stat(folder / f"{name}.key").st_mode) == 0o600


def test_missing_foreign_and_expired_certificates_are_said(folder, tmp_path):
    with pytest.raises(BadInput, match="with nobody"):
        keys.check(folder, "nobody")
    (tmp_path / "other").mkdir()
    keys.make(tmp_path / "other", {"a": [], "b": []})
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "authority.pem").write_bytes((folder / "authority.pem").read_bytes())
    for suffix in (".pem", ".key"):
        (mixed / f"a{suffix}").write_bytes((tmp_path / "other" / f"a{suffix}").read_bytes())
        (mixed / f"b{suffix}").write_bytes((folder / f"a{suffix}").read_bytes())
    with pytest.raises(BadInput, match="of the authority beside it"):
        keys.check(mixed, "a")
    (mixed / "c.pem").write_text("not yet")
    with pytest.raises(BadInput, match=r"c\.pem.*a certificate, .*this file holds something else"):
        keys.check(mixed, "c")
    with pytest.raises(BadInput, match="this is a's"):
        keys.check(mixed, "b")
    keys.make_certificate(tmp_path / "other", "late", [], days=-1)
    with pytest.raises(BadInput, match="expired on"):
        keys.check(tmp_path / "other", "late")


def test_a_secret_key_that_is_none_or_anothers_is_said(folder, tmp_path):
    for name in ("authority.pem", "a.pem", "b.key"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    for content, said in (
        (b"junk\n", "that can be read"),
        ((folder / "b.key").read_bytes(), "of the certificate beside"),
    ):
        (tmp_path / "a.key").write_bytes(content)
        with pytest.raises(BadInput, match=rf"a\.key.*{said}.*--renew a"):
            keys.check(tmp_path, "a")
    (tmp_path / "a.key").write_bytes((folder / "a.key").read_bytes())
    assert keys.check(tmp_path, "a")


def test_a_renewed_certificate_is_another_one_of_the_same_authority(folder):
    before = [(folder / f"b{suffix}").read_bytes() for suffix in (".pem", ".key")]
    keys.renew(folder, "b", [], 10)
    after = [(folder / f"b{suffix}").read_bytes() for suffix in (".pem", ".key")]
    assert before[0] != after[0] and before[1] != after[1]
    keys.check(folder, "b")
    with pytest.raises(BadInput, match="a node whose certificate is in"):
        keys.renew(folder, "nobody", [])


def test_the_list_of_those_who_were_revoked_is_found_while_a_node_runs(folder, monkeypatch):
    world = RealWorld(None, list_of=folder / keys.REVOKED)
    assert world.revoked() == frozenset()
    keys.revoke(folder, "b")
    keys.revoke(folder, "a")
    monkeypatch.setattr(world, "looked", -1e9)
    assert world.revoked() == {"a", "b"}
    (folder / keys.REVOKED).unlink()
    monkeypatch.setattr(world, "looked", -1e9)
    assert world.revoked() == {"a", "b"}  # a list that is gone pardons nobody
    with pytest.raises(BadInput, match="a node whose certificate is in"):
        keys.revoke(folder, "nobody")


def test_who_says_something_is_vouched_for_by_its_certificate(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        keys.make(folder, {"a": (), "b": ()})
    proof = keys.vouch(ours, "a", b"a key")
    assert keys.vouched(ours, "a", b"a key", proof) and len(proof) < PROOF
    assert keys.vouched(ours, "a", b"a key", proof.ljust(PROOF, b"\0"))
    wrong = [
        (ours, "b", b"a key", proof),  # another's name
        (ours, "a", b"another", proof),
        (theirs, "a", b"a key", proof),  # another authority
        (ours, "a", b"a key", keys.vouch(theirs, "a", b"a key")),
        (ours, "a", b"a key", b""),
        (ours, "a", b"a key", bytes(PROOF)),
        (ours, "a", b"a key", proof[:-3]),
    ]
    assert not any(keys.vouched(*one) for one in wrong)
    keys.make_certificate(ours, "b", (), days=-1)
    assert not keys.vouched(ours, "b", b"a key", keys.vouch(ours, "b", b"a key"))  # expired
