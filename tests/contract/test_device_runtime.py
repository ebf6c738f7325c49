"""printf, assert, malloc and free in kernels."""

import ctypes
import itertools
from typing import Any

import pytest

from tests.helpers.device import PTX_HEADER, REAL, Cuda, run_alone

U64, U32 = ctypes.c_uint64, ctypes.c_uint32

# say(format, arguments, result): *result = vprintf(format, arguments), by each thread
SAY = '''
import struct
cuda.cuInit(0)
context = cuda.cuCtxCreate(None, 0, cuda.cuDeviceGet(0))
U64, U32 = ctypes.c_uint64, ctypes.c_uint32
SAY = PTX_HEADER + """
.extern .func (.param .b32 result) vprintf (.param .b64 format, .param .b64 arguments);
.visible .entry say(.param .u64 format, .param .u64 arguments, .param .u64 out)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [format];
    ld.param.u64 %rd2, [arguments];
    ld.param.u64 %rd3, [out];
    {
    .param .b64 a;
    .param .b64 b;
    .param .b32 c;
    st.param.b64 [a], %rd1;
    st.param.b64 [b], %rd2;
    call.uni (c), vprintf, (a, b);
    ld.param.b32 %r1, [c];
    }
    st.global.u32 [%rd3], %r1;
    ret;
}
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.visible .entry fail(.param .u64 message, .param .u64 file, .param .u64 name)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 2;
    @%p1 bra DONE;
    ld.param.u64 %rd1, [message];
    ld.param.u64 %rd2, [file];
    ld.param.u64 %rd3, [name];
    {
    .param .b64 a;
    .param .b64 b;
    .param .b32 c;
    .param .b64 d;
    .param .b64 e;
    st.param.b64 [a], %rd1;
    st.param.b64 [b], %rd2;
    st.param.b32 [c], 77;
    st.param.b64 [d], %rd3;
    st.param.b64 [e], 1;
    call.uni __assertfail, (a, b, c, d, e);
    }
DONE:
    ret;
}
"""
module = cuda.module(SAY)
say = cuda.cuModuleGetFunction(module, b"say")
fail = cuda.cuModuleGetFunction(module, b"fail")
out = cuda.cuMemAlloc(4)

def on_device(data):
    return cuda.put(np.frombuffer(data, np.uint8))

def post(template, *arguments, threads=1):
    packed = b""
    for a in arguments:
        if isinstance(a, float):
            packed += b"\\0" * (-len(packed) % 8) + struct.pack("<d", a)
        elif isinstance(a, bytes) or a >= 1 << 31:
            packed += b"\\0" * (-len(packed) % 8) + struct.pack("<Q", int(on_device(a + b"\\0")) if isinstance(a, bytes) else a)
        else:
            packed += struct.pack("<i", a)
    text = int(on_device(template + b"\\0")) if template is not None else 0
    cuda.launch(say, 1, threads, ((U64, text), (U64, int(on_device(packed)) if packed else 0), (U64, int(out))))

def result():
    return int(cuda.get(out, 1, np.int32)[0])

def tell(text):
    os.write(1, text.encode() + b"\\n")
'''


def output(cuda: Cuda, code: str) -> tuple[list[str], str]:
    """Lines of standard output, and standard error, of a process that runs the code."""
    done = run_alone(cuda.kind, SAY + code)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_all_conversions(cuda: Cuda) -> None:
    lines, _ = output(
        cuda,
        r"""
post(b"%d|%5d|%-5d|%05d|%+d|% d|%i\n", -1, 42, 42, 42, 42, 42, -7)
post(b"%u|%o|%x|%X|%#x|%#o\n", -1, 8, 255, 255, 255, 8)
post(b"%lld|%llu|%lx\n", 1 << 40, (1 << 64) - 1, 1 << 36)
post(b"%f|%.2f|%10.3f|%e|%E|%g|%G|%a\n", 1.5, 2.0 / 3, 3.25, 12345.678, 0.5, 1e-10, 1e20, 0.75)
post(b"%c%c|%s|%5s|%-5s|%.2s|%%\n", 65, 66, b"text", b"ab", b"cd", b"xyz")
post(b"%*d|%-*d|%.*f|%*d\n", 6, 42, 6, 42, 2, 3.14159, -4, 1)
post(b"%p %hd %hhu\n", 0x7FFF00001234, 65537, 257)
cuda.cuCtxSynchronize()
""",
    )
    assert lines == [
        "-1|   42|42   |00042|+42| 42|-7",
        "4294967295|10|ff|FF|0xff|010",
        "1099511627776|18446744073709551615|1000000000",
        "1.500000|0.67|     3.250|1.234568e+04|5.000000E-01|1e-10|1E+20|0x1.8p-1",
        "AB|text|   ab|cd   |xy|%",
        "    42|42    |3.14|1   ",
        "0x7fff00001234 1 1",
    ]


def test_what_printf_returns_in_a_kernel(cuda: Cuda) -> None:
    lines, _ = output(
        cuda,
        r"""
post(b"nothing\n"); tell(f"{result()}")
post(b"%d %f\n", 1, 2.0); tell(f"{result()}")
post(None); tell(f"{result()}")
""",
    )
    assert lines == ["nothing", "0", "1 2.000000", "2", "-1"]


@pytest.mark.parametrize("call", ["cuda.cuCtxSynchronize()", "cuda.cuStreamSynchronize(0)", "cuda.get(out, 1)"])
def test_output_comes_at_calls_that_synchronise_and_in_order(cuda: Cuda, call: str) -> None:
    lines, _ = output(
        cuda,
        f"""
for n in range(3):
    tell(f"before {{n}}")
    post(b"kernel %d\\n", n, threads=2)
    {call}
tell("after")
""",
    )
    assert lines == [line for n in range(3) for line in (f"before {n}", f"kernel {n}", f"kernel {n}")] + ["after"]


def test_output_comes_at_an_event_and_when_a_context_ends(cuda: Cuda) -> None:
    lines, _ = output(
        cuda,
        r"""
event = cuda.cuEventCreate(0)
post(b"one\n")
cuda.cuEventRecord(event, 0)
cuda.cuEventSynchronize(event)
tell("event")
post(b"two\n")
cuda.cuCtxDestroy(context)
""",
    )
    assert lines == ["one", "event", "two"]


def test_more_than_32_arguments(cuda: Cuda) -> None:
    lines, _ = output(cuda, r'post(b" ".join([b"%d"] * 34) + b"\n", *range(34)); cuda.cuCtxSynchronize()')
    assert lines == [" ".join([str(n) for n in range(32)] + ["%d", "%d"])]


def test_a_string_that_the_kernel_may_not_read(cuda: Cuda) -> None:
    lines, _ = output(cuda, r'post(b"%s\n", 0xDEAD00001000); tell(str(cuda.fails("cuCtxSynchronize")))')
    assert lines == ["700"]


def test_the_output_buffer_is_circular(cuda: Cuda) -> None:
    lines, _ = output(
        cuda,
        r"""
cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20)
text = int(on_device(b"y" * 4000 + b"\0"))
packed = [on_device(struct.pack("<iiQ", n, 0, text)) for n in range(600)]
template = on_device(b"%d %s\n\0")
cuda.cuCtxSynchronize()
launches = [((U64, int(template)), (U64, int(p)), (U64, int(out))) for p in packed]
stream = cuda.cuStreamCreate(0)
cuda.cuStreamBeginCapture(stream, 2)
for arguments in launches:
    cuda.launch(say, 1, 1, arguments, stream=stream)
graph = cuda.cuStreamEndCapture(stream)
executable = cuda.cuGraphInstantiate(graph, 0)
cuda.cuGraphLaunch(executable, stream)
cuda.cuStreamSynchronize(stream)
""",
    )
    numbers = [int(line.split()[0]) for line in lines]
    assert numbers == list(range(600 - len(numbers), 600))
    assert 200 < len(numbers) < 300


def test_a_failed_assertion(cuda: Cuda) -> None:
    lines, errors = output(
        cuda,
        r"""
words = [int(on_device(t + b"\0")) for t in (b"x > 0", b"file.cu", b"void kernel(int)")]
cuda.launch(fail, 1, 4, tuple((U64, w) for w in words))
tell(str(cuda.fails("cuCtxSynchronize")))
tell(str(cuda.fails("cuCtxSynchronize")))
tell(str(cuda.fails("cuMemAlloc", 4)))
""",
    )
    assert lines == ["710", "710", "710"]
    assert "file.cu:77: void kernel(int): block: [0,0,0], thread: [2,0,0] Assertion `x > 0` failed.\n" in errors


# take(out, size): out[thread] = malloc(size). give(at): free(at[thread]).
HEAP = (
    PTX_HEADER
    + """
.extern .func (.param .b64 result) malloc (.param .b64 size);
.extern .func free (.param .b64 address);
.visible .entry take(.param .u64 out, .param .u64 size)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [size];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 8;
    add.s64 %rd4, %rd1, %rd3;
    {
    .param .b64 a;
    .param .b64 b;
    st.param.b64 [a], %rd2;
    call.uni (b), malloc, (a);
    ld.param.b64 %rd5, [b];
    }
    st.global.u64 [%rd4], %rd5;
    ret;
}
.visible .entry give(.param .u64 at)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [at];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 8;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.u64 %rd5, [%rd4];
    {
    .param .b64 a;
    st.param.b64 [a], %rd5;
    call.uni free, (a);
    }
    ret;
}
"""
)


def taken(cuda: Cuda, module: Any, size: int, threads: int = 1) -> Any:
    """Device array of what malloc(size) gave each thread."""
    out = cuda.cuMemAlloc(8 * threads)
    cuda.launch(cuda.cuModuleGetFunction(module, b"take"), 1, threads, ((U64, int(out)), (U64, size)))
    return out


def test_malloc_gives_distinct_aligned_pieces_that_last(cuda: Cuda, context: Any) -> None:
    module = cuda.module(HEAP)
    first = cuda.get(taken(cuda, module, 100, 64), 64, "uint64").tolist()
    second = cuda.get(taken(cuda, module, 100, 64), 64, "uint64").tolist()
    pieces = sorted(first + second)
    assert all(a and a % 16 == 0 for a in pieces)
    assert all(b - a >= 100 for a, b in itertools.pairwise(pieces))


def test_a_full_heap_gives_null_and_free_makes_room(cuda: Cuda, context: Any) -> None:
    size = 4 << 20
    cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, size)
    module = cuda.module(HEAP)
    big = taken(cuda, module, 3 << 20)
    assert cuda.get(big, 1, "uint64")[0] != 0
    room = int(cuda.cuCtxGetLimit(cuda.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE))
    assert cuda.get(taken(cuda, module, room), 1, "uint64")[0] == 0
    cuda.launch(cuda.cuModuleGetFunction(module, b"give"), 1, 1, ((U64, int(big)),))
    assert cuda.get(taken(cuda, module, 3 << 20), 1, "uint64")[0] != 0


def test_freeing_null_does_nothing(cuda: Cuda, context: Any) -> None:
    module = cuda.module(HEAP)
    at = cuda.cuMemAlloc(8)
    cuda.cuMemsetD32(at, 0, 2)
    cuda.launch(cuda.cuModuleGetFunction(module, b"give"), 1, 1, ((U64, int(at)),))
    cuda.cuCtxSynchronize()


@pytest.mark.parametrize("limit", ["CU_LIMIT_MALLOC_HEAP_SIZE", "CU_LIMIT_PRINTF_FIFO_SIZE"])
def test_limits_are_fixed_once_a_kernel_needed_them(cuda: Cuda, limit: str) -> None:
    number = f"cuda.CUlimit.{limit}"
    code = SAY + f'HEAP = """{HEAP}"""\n'
    code += f"cuda.cuCtxSetLimit({number}, 1 << 22)\npost(b'%d', 1)\n"
    code += "cuda.launch(cuda.function(HEAP, 'take'), 1, 1, ((U64, int(out)), (U64, 1)))\n" if "HEAP" in limit else ""
    code += f"cuda.cuCtxSynchronize()\ntell(str(int(cuda.fails('cuCtxSetLimit', {number}, 1 << 23))))\n"
    code += f"tell(str(int(cuda.cuCtxGetLimit({number}))))\n"
    done = run_alone(cuda.kind, code.replace("cuMemAlloc(4)", "cuMemAlloc(8)"))
    # The kernel's "1" without a line's end, then CUDA_ERROR_INVALID_VALUE.
    assert done.stdout.split() == ["11", str(1 << 22)], done.stderr


def test_the_host_may_not_copy_from_the_heap(cuda: Cuda, context: Any) -> None:
    module = cuda.module(HEAP)
    address = int(cuda.get(taken(cuda, module, 64), 1, "uint64")[0])
    data = ctypes.create_string_buffer(64)
    assert cuda.fails("cuMemcpyDtoH", ctypes.addressof(data), cuda.CUdeviceptr(address), 64) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    cuda.cuCtxSynchronize()


def test_a_heap_that_the_device_has_no_room_for(cuda: Cuda, context: Any) -> None:
    if cuda.kind == REAL:
        pytest.skip("a GPU's driver may refuse such a limit at once")
    cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 46)
    take = cuda.cuModuleGetFunction(cuda.module(HEAP), b"take")
    arguments = ((int(cuda.cuMemAlloc(8)), 1), (U64, U64))
    refused = cuda.fails("cuLaunchKernel", take, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0)
    assert refused == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY


def test_bad_addresses_of_formats_arguments_and_pieces(cuda: Cuda) -> None:
    bad = 0xDEAD00001000
    launches = [
        f"cuda.launch(say, 1, 1, ((U64, {bad}), (U64, 0), (U64, int(out))))",
        f'cuda.launch(say, 1, 1, ((U64, int(on_device(b"%d\\0"))), (U64, {bad}), (U64, int(out))))',
    ]
    if cuda.kind != REAL:  # CUDA does not say what becomes of this
        launches.append(f'cuda.launch(cuda.function(HEAP, "give"), 1, 1, ((U64, int(on_device(struct.pack("<Q", {bad})))),))')
    for launch in launches:
        lines, _ = output(cuda, f'HEAP = """{HEAP}"""\n{launch}\ntell(str(cuda.fails("cuCtxSynchronize")))\n')
        assert lines == ["700"], launch
