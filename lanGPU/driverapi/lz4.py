"""Decoding LZ4 blocks, which older toolkits put in fat binaries.

Source: the LZ4 block format description. A block is a run of sequences: a token byte (high nibble: literals, low nibble: match length
less 4; 15 means that bytes follow to be added, until one is not 255), the literals, a 16-bit offset back into the output. The last
sequence ends after its literals.
"""


class Lz4Error(ValueError):
    """The bytes are not an LZ4 block of the stated size."""


def decompress_block(data: bytes, size: int) -> bytes:
    """The `size` bytes that the block `data` stands for.

    Raises:
        Lz4Error: the block is corrupt, or holds more or fewer bytes.
    """
    out = bytearray()
    pos, end = 0, len(data)
    try:
        while True:
            token = data[pos]
            pos += 1
            literals, pos = _length(data, pos, token >> 4)
            if pos + literals > end or len(out) + literals > size:
                raise Lz4Error("literals reach over the end")
            out += data[pos : pos + literals]
            pos += literals
            if pos == end:
                break
            offset = data[pos] | data[pos + 1] << 8
            pos += 2
            length, pos = _length(data, pos, token & 15)
            length += 4
            start = len(out) - offset
            if offset == 0 or start < 0 or len(out) + length > size:
                raise Lz4Error("a match reaches outside of the output")
            if offset >= length:
                out += out[start : start + length]
            else:
                # The match overlaps what it produces: the last `offset` bytes repeat.
                piece = bytes(out[start:])
                out += (piece * (length // offset + 1))[:length]
    except IndexError:
        raise Lz4Error("the block ends in mid-sequence") from None
    if len(out) != size:
        raise Lz4Error(f"the block holds {len(out)} bytes, not {size}")
    return bytes(out)


def _length(data: bytes, pos: int, nibble: int) -> tuple[int, int]:
    """A length whose first part is `nibble`, and the position after it."""
    length = nibble
    if nibble == 15:
        while True:
            more = data[pos]
            pos += 1
            length += more
            if more != 255:
                break
    return length, pos
