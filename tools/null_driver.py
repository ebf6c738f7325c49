"""Write a libcuda.so.1 that does nothing: every function succeeds, device memory is memory of the process. Needs no compiler.

A measuring aid: it takes the device out of the picture, so that what remains is the cost of remoting.

    python tools/null_driver.py FOLDER      and then      LD_LIBRARY_PATH=FOLDER langpu serve
"""

import argparse
from pathlib import Path

from lanGPU.driverapi import exports
from lanGPU.native import elf, jit, x86_64

SONAME = "libcuda.so.1"
DRIVER_VERSION = 13000
TOTAL_BYTES = 8 << 30
LARGE_BYTES = 1 << 20
"""Allocations from here up are mappings of their own, which cuMemFree gives back; smaller ones come from an arena and are never reused."""
ARENA_BYTES = 4 << 30

# Bodies by function: %nN is argument N (from 0) as i64, %pN as a pointer. A body returns a CUresult, or goes to %ok, which returns 0.
_STORE = {
    "cuDriverGetVersion": ("i32", DRIVER_VERSION, 0),
    "cuDeviceGetCount": ("i32", 1, 0),
    "cuDeviceTotalMem_v2": ("i64", TOTAL_BYTES, 0),
    "cuDevicePrimaryCtxRetain": ("i64", 0x8000, 0),
    "cuCtxCreate_v2": ("i64", 0x8000, 0),
    "cuCtxCreate_v3": ("i64", 0x8000, 0),
    "cuCtxCreate_v4": ("i64", 0x8000, 0),
    "cuCtxGetCurrent": ("i64", 0x8000, 0),
    "cuCtxPopCurrent_v2": ("i64", 0x8000, 0),
    "cuCtxGetDevice": ("i32", 0, 0),
    "cuStreamIsCapturing": ("i32", 0, 1),
    "cuFuncGetAttribute": ("i32", 1024, 0),
}
"""Functions that store one constant: type, value, index of the pointer."""
_NEW_HANDLE = (
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuEventCreate",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleGetFunction",
    "cuGraphCreate",
    "cuGraphInstantiateWithFlags",
)
_ALLOCATE = ("cuMemAlloc_v2", "cuMemAllocHost_v2", "cuMemHostAlloc", "cuMemAllocAsync")
_FREE = ("cuMemFree_v2", "cuMemFreeHost", "cuMemFreeAsync")
_COPY = ("cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoD_v2", "cuMemcpyDtoDAsync_v2")
_REFUSED = {"cuPointerGetAttribute": 1, "cuGetExportTable": 500}
_ATTRIBUTES = {1: 1024, 10: 32, 75: 8, 76: 0}
"""CUdevice_attribute: maximum threads per block, warp size, compute capability; all others are 1."""

_HEAD = """
@arena = internal global i64 0
@handle = internal global i64 4096
declare void @llvm.memset.inline.p0.i64(ptr, i8, i64, i1)
"""

_ALLOC = """
define internal i64 @map(i64 %size) {{
  %p = call i64 @sys(i64 {mmap}, i64 0, i64 %size, i64 3, i64 16418, i64 -1, i64 0)
  ret i64 %p
}}
define internal i64 @allocate(i64 %size) {{
e:
  %large = icmp uge i64 %size, {LARGE_BYTES}
  br i1 %large, label %own, label %small
own:
  %whole = add i64 %size, 4096
  %m = call i64 @map(i64 %whole)
  %mp = inttoptr i64 %m to ptr
  store i64 %whole, ptr %mp
  %a = add i64 %m, 4096
  ret i64 %a
small:
  %have = load i64, ptr @arena
  %none = icmp eq i64 %have, 0
  br i1 %none, label %first, label %take
first:
  %new = call i64 @map(i64 {ARENA_BYTES})
  store i64 %new, ptr @arena
  br label %take
take:
  %at = phi i64 [%have, %small], [%new, %first]
  %n = add i64 %size, 255
  %n256 = and i64 %n, -256
  %next = add i64 %at, %n256
  store i64 %next, ptr @arena
  ret i64 %at
}}
define internal void @release(i64 %a) {{
e:
  %offset = and i64 %a, 4095
  %zero = icmp eq i64 %offset, 0
  %m = sub i64 %a, 4096
  %null = icmp eq i64 %a, 0
  %bad = xor i1 %zero, true
  %skip0 = or i1 %bad, %null
  %arena = load i64, ptr @arena
  %back = sub i64 %arena, %a
  %inside = icmp ule i64 %back, {ARENA_BYTES}
  %skip = or i1 %skip0, %inside
  br i1 %skip, label %out, label %own
own:
  %mp = inttoptr i64 %m to ptr
  %whole = load i64, ptr %mp
  %r = call i64 @sys(i64 {munmap}, i64 %m, i64 %whole, i64 0, i64 0, i64 0, i64 0)
  br label %out
out:
  ret void
}}
"""

_LOOKUP = """
; cuGetProcAddress: the export for a base name; null if there is none
define internal ptr @lookup(ptr %name) {{
e:
  br label %next
next:
  %i = phi i64 [0, %e], [%i2, %other]
  %end = icmp eq i64 %i, {COUNT}
  br i1 %end, label %none, label %compare
compare:
  %ep = getelementptr [2 x i32], ptr @entries, i64 %i
  %sat = load i32, ptr %ep
  %tp = getelementptr i8, ptr %ep, i64 4
  br label %byte
byte:
  %k = phi i64 [0, %compare], [%k2, %same]
  %sz = zext i32 %sat to i64
  %so = add i64 %sz, %k
  %ap = getelementptr i8, ptr @strings, i64 %so
  %bp = getelementptr i8, ptr %name, i64 %k
  %a = load i8, ptr %ap
  %b = load i8, ptr %bp
  %eq = icmp eq i8 %a, %b
  br i1 %eq, label %same, label %other
same:
  %k2 = add i64 %k, 1
  %nul = icmp eq i8 %a, 0
  br i1 %nul, label %found, label %byte
found:
  %index = load i32, ptr %tp
  %iz = zext i32 %index to i64
  %o = mul i64 %iz, {TRAMPOLINE_BYTES}
  %o2 = add i64 %o, {FIRST}
  %p = getelementptr i8, ptr @image_start, i64 %o2
  ret ptr %p
other:
  %i2 = add i64 %i, 1
  br label %next
none:
  ret ptr null
}}
@image_start = external hidden global i8
"""


def _arguments() -> str:
    """Loads of the arguments 0-5 as i64 (%n0…) and pointers (%p0…)."""
    lines = []
    for i in range(6):
        lines += [
            f"  %a{i} = getelementptr i64, ptr %r, i64 {i}",
            f"  %n{i} = load i64, ptr %a{i}",
            f"  %p{i} = inttoptr i64 %n{i} to ptr",
        ]
    return "\n".join(lines)


def _bodies() -> dict[str, str]:
    """IR of each function that does something; it continues at %ok or returns."""
    out = {}
    for name, (kind, value, pointer) in _STORE.items():
        out[name] = f"  store {kind} {value}, ptr %p{pointer}\n  br label %ok\n"
    for name in _NEW_HANDLE:
        k = name
        out[name] = (
            f"  %{k}.h = load i64, ptr @handle\n  %{k}.n = add i64 %{k}.h, 16\n  store i64 %{k}.n, ptr @handle\n"
            f"  store i64 %{k}.n, ptr %p0\n  br label %ok\n"
        )
    for name in _ALLOCATE:
        out[name] = f"  %{name}.a = call i64 @allocate(i64 %n1)\n  store i64 %{name}.a, ptr %p0\n  br label %ok\n"
    for name in _FREE:
        out[name] = "  call void @release(i64 %n0)\n  br label %ok\n"
    for name in _COPY:
        out[name] = "  call void @copy(ptr %p0, ptr %p1, i64 %n2)\n  br label %ok\n"
    for name, result in _REFUSED.items():
        out[name] = f"  ret i32 {result}\n"
    out["cuDeviceGet"] = (
        "  %device = trunc i64 %n1 to i32\n  store i32 %device, ptr %p0\n  %known = icmp eq i32 %device, 0\n"
        "  %device.r = select i1 %known, i32 0, i32 101\n  ret i32 %device.r\n"
    )
    out["cuDeviceGetName"] = "  store i64 1819047278, ptr %p0\n  br label %ok\n"  # "null", NUL
    fill = "  call void @llvm.memset.inline.p0.i64(ptr %p0, i8 7, i64 16, i1 false)\n  br label %ok\n"
    out["cuDeviceGetUuid"] = out["cuDeviceGetUuid_v2"] = fill
    values = "%attribute"
    attribute = ["  %attribute = trunc i64 %n1 to i32"]
    selected = "1"
    for number, value in _ATTRIBUTES.items():
        attribute.append(f"  %is{number} = icmp eq i32 {values}, {number}")
        attribute.append(f"  %v{number} = select i1 %is{number}, i32 {value}, i32 {selected}")
        selected = f"%v{number}"
    out["cuDeviceGetAttribute"] = "\n".join(attribute) + f"\n  store i32 {selected}, ptr %p0\n  br label %ok\n"
    out["cuMemHostGetDevicePointer_v2"] = "  store i64 %n1, ptr %p0\n  br label %ok\n"
    out["cuMemGetInfo_v2"] = f"  store i64 {TOTAL_BYTES - (1 << 30)}, ptr %p0\n  store i64 {TOTAL_BYTES}, ptr %p1\n  br label %ok\n"
    # The timed kernel has three addresses and an int; its layout is read from the image, or asked here.
    layout = (
        "  %N.in = icmp ult i64 %n1, 4\n  br i1 %N.in, label %N.known, label %N.past\nN.past:\n  ret i32 1\nN.known:\n"
        "  %N.o = mul i64 %n1, 8\n  store i64 %N.o, ptr %p2\n  %N.last = icmp eq i64 %n1, 3\n  %N.s = select i1 %N.last, i64 4, i64 8\n"
        "  %N.none = icmp eq ptr %p3, null\n  br i1 %N.none, label %ok, label %N.size\nN.size:\n  store i64 %N.s, ptr %p3\n  br label %ok\n"
    )
    for name in ("cuFuncGetParamInfo", "cuKernelGetParamInfo"):
        out[name] = layout.replace("N.", name + ".")
    out["cuGetProcAddress_v2"] = (
        "  %found = call ptr @lookup(ptr %p0)\n  store ptr %found, ptr %p1\n  %missing = icmp eq ptr %found, null\n"
        "  %nostatus = icmp eq ptr %p4, null\n  br i1 %nostatus, label %nostatus.l, label %status\nstatus:\n"
        "  %status.v = zext i1 %missing to i32\n  store i32 %status.v, ptr %p4\n  br label %nostatus.l\nnostatus.l:\n"
        "  %lookup.r = select i1 %missing, i32 500, i32 0\n  ret i32 %lookup.r\n"
    )
    out["cuGetProcAddress"] = (
        "  %found1 = call ptr @lookup(ptr %p0)\n  store ptr %found1, ptr %p1\n  %missing1 = icmp eq ptr %found1, null\n"
        "  %lookup1.r = select i1 %missing1, i32 500, i32 0\n  ret i32 %lookup1.r\n"
    )
    return out


def text(names: list[str], first: int) -> str:
    """The driver's IR; `first`: offset of the first export in the image."""
    bases: dict[str, int] = {}
    index = {name: i for i, name in enumerate(names)}
    for name in names:
        base = name.partition("_v")[0] if name.partition("_v")[2].isdigit() else name
        symbol = exports.proc_address(base, DRIVER_VERSION)
        if symbol in index:
            bases[base] = index[symbol]
    strings, entries = "", []
    length = 0
    for base, target in bases.items():
        entries.append(f"i32 {length}, i32 {target}")
        strings += base + "\\00"
        length += len(base) + 1
    bodies = {name: body for name, body in _bodies().items() if name in index}
    cases = "\n".join(f"    i32 {index[name]}, label %do.{name}" for name in bodies)
    blocks = "\n".join(f"do.{name}:\n{body}" for name, body in bodies.items())
    numbers = {
        "mmap": x86_64.SYSCALLS["mmap"],
        "munmap": x86_64.SYSCALLS["munmap"],
        "LARGE_BYTES": LARGE_BYTES,
        "ARENA_BYTES": ARENA_BYTES,
        "COUNT": len(bases),
        "TRAMPOLINE_BYTES": x86_64.TRAMPOLINE_BYTES,
        "FIRST": first,
    }
    return "\n".join(
        [
            f'target triple = "{x86_64.TRIPLE}"',
            _HEAD,
            x86_64.IR,
            _ALLOC.format(**numbers),
            f'@strings = internal constant [{length} x i8] c"{strings}"',
            f"@entries = internal constant [{2 * len(bases)} x i32] [{', '.join(entries)}]",
            _LOOKUP.format(**numbers),
            "define hidden i32 @dispatch(i32 %index, ptr %r, ptr %s) {",
            _arguments(),
            f"  switch i32 %index, label %ok [\n{cases}\n  ]",
            blocks,
            "ok:\n  ret i32 0\n}",
        ]
    )


def build() -> bytes:
    """The shared object."""
    names = list(exports.export_names())
    first = 0
    while True:  # the exports' place depends on sizes alone, so the second round finds the same
        code = jit.compile_object(text(names, first), externals=(), target=jit.machine(image=True))
        image, exported = elf.shared_object(SONAME, names, code, "dispatch")
        if first == exported[names[0]]:
            return image
        first = exported[names[0]]


def write(folder: Path) -> Path:
    """Writes the library into `folder`; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SONAME
    path.write_bytes(build())
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a CUDA driver library that does nothing.")
    parser.add_argument("folder", type=Path)
    print(write(parser.parse_args().folder))
