"""The buffer of what kernels print."""

from lanGPU.emulator.kernel_output import RECORD_BYTES, STDERR, STDOUT, KernelOutput


def test_neighbours_are_joined_and_order_is_kept() -> None:
    output = KernelOutput(10_000)
    for descriptor, text in ((STDOUT, b"a"), (STDOUT, b"b"), (STDERR, b"c"), (STDOUT, b"d")):
        assert output.add(descriptor, text, 0)
    assert output.take() == [(STDOUT, b"ab"), (STDERR, b"c"), (STDOUT, b"d")]
    assert output.take() == []


def test_the_oldest_goes_when_the_buffer_is_full() -> None:
    output = KernelOutput(3 * (RECORD_BYTES + 8))
    for n in range(5):
        output.add(STDOUT, b"%d" % n, 8)
    assert output.take() == [(STDOUT, b"234")]
    assert output.add(STDOUT, b"again", 8)
    assert output.take() == [(STDOUT, b"again")]


def test_what_is_larger_than_the_buffer_is_refused() -> None:
    output = KernelOutput(100)
    output.add(STDOUT, b"kept", 8)
    assert not output.add(STDOUT, b"x", 100)
    assert output.take() == [(STDOUT, b"kept")]
