"""Packages, with made-up clients and archives."""

from __future__ import annotations

import gzip
import io
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from hotswap.data.sources import Package, RawFile, run_command
from hotswap.errors import DataError

Files = tuple[RawFile, ...]
Contents = dict[str, bytes]


class Client:
    """A registry client that leaves the given files in its folder."""

    def __init__(self, leaves: Contents) -> None:
        self.leaves = leaves
        self.commands: list[Sequence[str]] = []
        self.folders: list[Path] = []

    def __call__(self, command: Sequence[str], folder: Path) -> None:
        self.commands.append(command)
        self.folders.append(folder)
        for name, content in self.leaves.items():
            (folder / name).write_bytes(content)


def tgz(members: Contents) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def missing(command: Sequence[str], folder: Path) -> None:
    run_command(["a-program-that-nobody-has", *command[1:]], folder)


def test_npm_gives_the_files_of_its_archive(files: Files, contents: Contents) -> None:
    archive = tgz({f"package/data/{name}": raw for name, raw in contents.items()} | {"package/index.js": b""})
    client = Client({"things-1.2.3.tgz": archive})
    source = Package("npm", "things", "1.2.3", inside="package/data", run=client)
    assert {file.name: raw for file, raw in source.fetch(files)} == contents
    assert [word for word in client.commands[0] if word[0] != "-"] == ["npm", "pack", "things@1.2.3"]
    assert source.label == "npm package things 1.2.3"
    assert not client.folders[0].exists()
    assert client.folders[0].parent == Path(tempfile.gettempdir())


@pytest.mark.parametrize(
    ("leaves", "reason"),
    [
        ({}, r"the client left 0 files \*\.tgz where one was expected"),
        ({"a.tgz": b"", "b.tgz": b""}, r"the client left 2 files \*\.tgz where one was expected"),
        ({"a.tgz": b"no archive"}, "its archive is damaged"),
        ({"a.tgz": tgz({"package/data/pictures": bytes(3000)})[:-20]}, "its archive is damaged"),
        ({"a.tgz": tgz({"package/other": b""})}, "package/data/pictures is not in its archive"),
    ],
)
def test_npm_says_what_is_wrong_with_its_archive(leaves: Contents, reason: str, files: Files) -> None:
    client = Client(leaves)
    with pytest.raises(DataError, match=f"^{reason}$"):
        list(Package("npm", "things", "1.2.3", inside="package/data", run=client).fetch(files))
    assert not client.folders[0].exists()


def test_npm_gives_what_unpacking_finds_and_announces_a_long_transfer(files: Files, contents: Contents) -> None:
    client = Client({"things-1.2.3.tgz": b"archive"})

    def unpack(archive: Path) -> Contents:
        assert archive.read_bytes() == b"archive"
        return {name: contents[name] for name in ("pictures", "notes")}

    source = Package("npm", "things", "1.2.3", unpack=unpack, megabytes=99, run=client)
    offers = source.fetch(files)
    assert next(offers) == (files[0], contents["pictures"])
    with pytest.raises(DataError, match=r"^names is not in it$"):
        next(offers)
    assert source.announcement == "fetching 99 MB from npm package things 1.2.3, which may take a few minutes"
    assert Package("npm", "things", "1.2.3").announcement is None


def test_npm_missing_is_a_reason(files: Files) -> None:
    with pytest.raises(DataError, match=r"^a-program-that-nobody-has is not installed$"):
        list(Package("npm", "things", "1.2.3", inside="package", run=missing).fetch(files))


def test_pip_gives_what_unpacking_finds(files: Files, contents: Contents) -> None:
    client = Client({"things-1.2.3-py3-none-any.whl": b"wheel"})

    def unpack(wheel: Path) -> Contents:
        assert wheel.read_bytes() == b"wheel"
        return contents

    source = Package("pip", "things", "1.2.3", unpack=unpack, run=client)
    assert {file.name: raw for file, raw in source.fetch(files[1:])} == {
        name: contents[name] for name in ("names", "notes")
    }
    (command,) = client.commands
    assert list(command[:4]) == [sys.executable, "-m", "pip", "download"]
    assert command[-1] == "things==1.2.3"
    assert {"--no-deps", "--only-binary=:all:"} <= set(command)
    assert not client.folders[0].exists()


class Apt:
    """Debian's two programs: `apt-get` fails until the list of packages is fetched, `dpkg-deb` unpacks."""

    def __init__(self, contents: Contents, *, fails: int = 0) -> None:
        self.contents, self.fails = contents, fails
        self.commands: list[str] = []

    def __call__(self, command: Sequence[str], folder: Path) -> None:
        self.commands.append(" ".join(word for word in command if not word.startswith("-")))
        if "download" in command:
            if self.fails:
                self.fails -= 1
                raise DataError("E: Unable to locate package things")
            (folder / "things_1_all.deb").write_bytes(b"package")
        elif "--extract" in command:
            target = folder / command[-1] / "usr/share/things"
            target.mkdir(parents=True)
            for name, raw in self.contents.items():
                (target / f"{name}.gz").write_bytes(gzip.compress(raw))


def debian(apt: Apt, *, root: bool = True) -> Package:
    return Package("apt", "things", inside="usr/share/things", megabytes=3, run=apt, may_update=root)


def test_debian_gives_the_files_of_its_package(files: Files, contents: Contents) -> None:
    apt = Apt(contents)
    assert {file.name: raw for file, raw in debian(apt).fetch(files)} == contents
    assert apt.commands == ["apt-get download things", "dpkg-deb things_1_all.deb unpacked"]
    assert debian(apt).label == "Debian package things"
    assert debian(apt).announcement == "fetching 3 MB from Debian package things, which may take a few minutes"


def test_debian_fetches_the_list_of_packages_once_where_it_may(files: Files, contents: Contents) -> None:
    apt = Apt(contents, fails=1)
    assert len(list(debian(apt).fetch(files))) == 3
    assert apt.commands[:3] == ["apt-get download things", "apt-get update", "apt-get download things"]
    for root, commands in ((True, 3), (False, 1)):
        apt = Apt(contents, fails=2)
        with pytest.raises(DataError, match=r"^E: Unable to locate package things$"):
            list(debian(apt, root=root).fetch(files))
        assert len(apt.commands) == commands


def test_debian_says_what_is_not_in_the_package(files: Files, contents: Contents) -> None:
    offers = debian(Apt({"names": contents["names"]})).fetch(files)
    assert next(offers) == (files[1], contents["names"])
    with pytest.raises(DataError, match=r"^pictures is not there; notes is not there$"):
        next(offers)


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no Debian")
def test_debian_with_a_package_made_here(files: Files, contents: Contents, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "usr/share/things").mkdir(parents=True)
    for name, raw in contents.items():
        (tree / "usr/share/things" / name).write_bytes(raw)
    (tree / "DEBIAN").mkdir(mode=0o755)
    fields = "Package: things\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x.example>\nDescription: things\n"
    (tree / "DEBIAN/control").write_text(fields)
    (tree / "DEBIAN/postinst").write_text(f"#!/bin/sh\ntouch {tmp_path}/installed\n")
    (tree / "DEBIAN/postinst").chmod(0o755)
    run_command(["dpkg-deb", "--root-owner-group", "--build", "tree", "things_1_all.deb"], tmp_path)

    def run(command: Sequence[str], folder: Path) -> None:
        if command[0] == "apt-get":
            shutil.copy(tmp_path / "things_1_all.deb", folder)
        else:
            run_command(command, folder)

    source = Package("apt", "things", inside="usr/share/things", run=run)
    assert {file.name: raw for file, raw in source.fetch(files)} == contents
    assert not (tmp_path / "installed").exists()


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("npm error code ENOTFOUND\nnpm error syscall\nnpm error A complete log", "npm error code ENOTFOUND"),
        ("npm ERR! code E404\nnpm ERR! 404", "npm ERR! code E404"),
        ("WARNING: Retrying after ConnectionError\nERROR: No matching one\nhint", "ERROR: No matching one"),
        ("W: unsandboxed\nE: Unable to locate package x\nW: last", "E: Unable to locate package x"),
        ("first\nlast\n\n", "last"),
        ("", "python ended with code 3"),
        ("x" * 500, "x" * 157 + "..."),
    ],
)
def test_a_failing_command_is_quoted_in_a_few_words(stderr: str, reason: str, tmp_path: Path) -> None:
    script = f"import sys; sys.stderr.write({stderr!r}); sys.exit(3)"
    with pytest.raises(DataError) as caught:
        run_command([sys.executable, "-c", script], tmp_path)
    assert str(caught.value).replace(sys.executable, "python") == reason


def test_a_command_runs_in_its_folder_and_gets_no_input(tmp_path: Path) -> None:
    script = "import sys; open('seen', 'w').write(repr(sys.stdin.read()))"
    run_command([sys.executable, "-c", script], tmp_path)
    assert (tmp_path / "seen").read_text() == "''"
