"""Files and archives that are too large, or made to do harm: refused in a sentence, before they are read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from hotswap.data import sources
from hotswap.data.sources import Folder, MirrorArchive, RawFile
from hotswap.errors import DataError

FILE = RawFile("pictures", 2048, "")


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> io.BytesIO:
    """A tar file of these headers, each followed by these bytes, whatever the header says."""
    return io.BytesIO(b"".join(member.tobuf() + content for member, content in members) + bytes(1024))


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, link
    return made


def refusal(stream: io.BytesIO) -> str:
    mirror = MirrorArchive("https://mirror.example/x.tar", inside="things", megabytes=1, opener=lambda *_: stream)
    with pytest.raises(DataError) as caught:
        list(mirror.fetch([FILE]))
    return str(caught.value)


@pytest.mark.parametrize("name", ["pictures", "pictures.gz"])
def test_a_file_of_many_gigabytes_is_not_read(name: str, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as sparse:
        sparse.truncate(6 * 10**9)  # takes no space on the disk
    with pytest.raises(DataError, match=rf"^{name} has 6,000,000,000 bytes, and pictures has 2,048$"):
        list(Folder(tmp_path).fetch([FILE]))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_link_to_itself_is_not_followed(kind: bytes) -> None:
    stream = archive((member("things/pictures", kind, link="things/pictures"), b""))
    assert refusal(stream) == "things/pictures is no file in its archive, but a link or the like"


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_long_name_is_not_read(kind: bytes) -> None:
    stream = archive((member("long", kind, 3_100_000_000), b""))
    assert refusal(stream) == "its archive has a header of 3,100,000,000 bytes; the most are 100,000"


def test_no_archive_is_unpacked_further_than_data_sets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = archive((member("large", size=5_000_000_000), b""), (member("things/pictures"), b""))
    assert refusal(stream) == "its archive has more than 4,000,000,000 bytes when it is unpacked"
    monkeypatch.setattr(sources, "MOST_MEMBERS", 2)
    assert refusal(archive(*[(member("small"), b"")] * 3)) == "its archive has more than 2 members"


@pytest.mark.parametrize("size", [-512, -1, 2**62])
def test_sizes_that_no_member_has(size: int) -> None:
    header = bytearray(member("things/pictures").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (size % 2**96).to_bytes(12, "big") if size < 0 else b"\x80" + size.to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    assert refusal(io.BytesIO(bytes(header) + bytes(4096))).startswith("its archive ")
