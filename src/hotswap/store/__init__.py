"""One folder for studies and benchmarks: what is finished, what is running, and from where running units go on.

    DIR/about.hotswap                           what the folder is of
    DIR/units/UNIT.hotswap                      a finished unit: what it measured, and what trained it
    DIR/checkpoints/UNIT/epoch-000010.hotswap   a unit that is not finished: the same so far, and its weights
    DIR/running/UNIT.lock, UNIT.json            held by the process that trains the unit; how far it is

Every file is written whole or not at all, and has digests over all of its bytes. Several processes may work in a
folder. To put folders together, copy the files of their finished units into one.
"""

from hotswap.store.checkpoints import Checkpoint, Checkpoints
from hotswap.store.folder import Folder
from hotswap.store.origin import occasion, versions, without_folders
from hotswap.store.records import parsed, read_record, write_record

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "Folder",
    "occasion",
    "parsed",
    "read_record",
    "versions",
    "without_folders",
    "write_record",
]
