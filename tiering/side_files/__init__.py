"""Side files: what a segment's rows in the table don't say, as Puffin files in the object store.

A side file has the header and the digest of every batch, the record bytes that the table lacks
(aborted and control batches, odd encodings), and the segment's indexes. It speaks of offsets and
log positions only, never of data files: rewriting the table can't invalidate it.
"""

from tiering.side_files.bundles import bundle
from tiering.side_files.reader import SideFile
from tiering.side_files.writer import SideFileInfo, SideFileWriter

__all__ = ["SideFile", "SideFileInfo", "SideFileWriter", "bundle"]
