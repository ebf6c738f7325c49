"""Carries out hand-written calls: drives their generators, turns effects into records, memory accesses and commands to the shim.

Belongs to the forwarder thread, except `on_reply`, which the receiver calls: it never sends and never touches a generator; what must
go on is put into `inbox` and the forwarder is woken.
"""

import logging
import os
import struct
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from lanGPU.client import layout as lay
from lanGPU.client.calls import HANDLERS, callbacks, effects, fallback, start
from lanGPU.client.calls.registry import BEFORE_INIT
from lanGPU.client.calls.shared import coherent
from lanGPU.client.calls.state import Call, SessionState
from lanGPU.client.memory import MemoryRefusedError, ProgramFaultError, ProgramMemory
from lanGPU.client.pump_ir import AGENT_TOKEN
from lanGPU.client.ring import (
    Request,
    Ring,
    command_call,
    command_read,
    command_read_string,
    command_return,
    command_syscall,
    command_thread,
    command_write,
)
from lanGPU.client.syscalls import NUMBERS
from lanGPU.constants import (
    COPY_CHUNK_BYTES,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_INITIALIZED,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_UNKNOWN,
    CUDA_SUCCESS,
)
from lanGPU.driverapi.export_tables import private_rows
from lanGPU.driverapi.exports import export_names
from lanGPU.driverapi.images import MAX_IMAGE_BYTES
from lanGPU.driverapi.table import BY_ID, BY_NAME
from lanGPU.errors import LanGPUError
from lanGPU.nvml.results import ERROR_GPU_IS_LOST as NVML_GPU_IS_LOST
from lanGPU.nvml.results import ERROR_NOT_SUPPORTED as NVML_NOT_SUPPORTED
from lanGPU.nvml.rows import nvml_rows
from lanGPU.wire.connection import Buffer
from lanGPU.wire.events import HostCallReceived
from lanGPU.wire.handshake import Welcome
from lanGPU.wire.records import RECORD_HEADER, REPLY_HEADER, Value, encode, pad8

_log = logging.getLogger(__name__)

_SUSPENDED: Final = object()
_DEFERRED_WRITE_BYTES: Final = 4096
"""Writes up to here together are left to the calling thread, as commands before its return: no system call of ours."""
_COMMAND_DATA_BYTES: Final = 64 * 1024
"""Program memory moved through a slot at a time where it cannot be reached directly; well below SLOT_DATA_BYTES."""
_SEPARATE_BLOB_BYTES: Final = 64 * 1024
"""Blobs above this are sent from where they lie instead of being copied into the record."""
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I64: Final = struct.Struct("<q")


_PRIVATE: Final = {row.api_id: row for row in (*private_rows().values(), *nvml_rows().values())}


class Shell(Protocol):
    """What the engine needs from its session."""

    blocking: bool

    def send_records(self, *buffers: Buffer) -> None:
        """Send record bytes now, in order. Raises ConnectionLostError."""

    def connect(self) -> Welcome:
        """Open the connection if it is not open."""

    def send_host_done(self, call: int) -> None:
        """Say that a function of the program returned. Raises ConnectionLostError."""

    def waited(self, replies: int) -> None:
        """A call waits for the server once more, for so many replies."""


class Run:
    """A call in progress."""

    __slots__ = ("below", "call", "gen", "outer", "resume", "slot", "write_bytes", "writes")

    def __init__(self, slot: int, call: Call, gen: effects.Steps) -> None:
        self.slot = slot
        self.call = call
        self.gen = gen
        self.outer: list[effects.Steps] = []
        """Generators that wait for `gen`'s value."""
        self.writes: list[bytes] = []
        self.write_bytes = 0
        self.resume: Callable[[], Any] | None = None
        """What to do when the shim continues; its result goes into the generator."""
        self.below: Run | None = None
        """The thread's call during which it made this one: a destructor that calls the driver."""


class _Fetching:
    """A Fetch in progress: counts its replies. Touched by the receiver only, until `left` is 0."""

    __slots__ = ("left", "result", "run")

    def __init__(self, run: Run, count: int) -> None:
        self.run = run
        self.left = count
        self.result = CUDA_SUCCESS


class Engine:
    """The hand-written calls of one process."""

    def __init__(self, ring: Ring, memory: ProgramMemory, state: SessionState, shell: Shell) -> None:
        self.ring = ring
        self.memory = memory
        self.state = state
        self.shell = shell
        self.inbox: deque[tuple[Run, Any]] = deque()
        """(call, what to resume it with or the exception to throw); appended by the receiver."""
        self.host_calls: deque[HostCallReceived] = deque()
        """What the program is to call, in order; appended by the receiver."""
        self._callers: deque[Run] = deque()
        """Threads of the shim's that wait for something to call."""
        self._runs: dict[int, Run] = {}
        self._pending: dict[int, Run | tuple[_Fetching, effects.Piece]] = {}
        """Key: thread << 32 | token."""
        self._token = 0
        self._staging = bytearray(COPY_CHUNK_BYTES)
        self._logged: set[str] = set()
        self.calls = 0
        self.unsupported: Counter[str] = Counter()
        """Functions that the agent answered with "not supported"; those without a row come here only the first time."""
        self._perform: dict[type, Callable[[Run, Any], Any]] = {
            effects.ReadMemory: self._read_memory,
            effects.ReadString: self._read_string,
            effects.WriteMemory: self._write_memory,
            effects.Post: self._post,
            effects.Request: self._request,
            effects.Fetch: self._fetch,
            effects.Syscall: self._syscall,
            effects.CallProgram: self._call_program,
            effects.ReadFile: self._read_file,
            effects.WriteFile: self._write_file,
            effects.StartThread: self._start_thread,
            effects.NextHostCall: self._next_host_call,
            effects.HostDone: self._host_done,
            effects.Connect: self._connect,
            effects.LogLine: self._log_line,
        }

    # --- requests --------------------------------------------------------------------------------------------------------
    def _unsupported(self, request: Request) -> None:
        """A function without a row: the shim says so once for each, and answers by itself from then on."""
        names = export_names()
        name = names[request.args[0]] if request.args[0] < len(names) else f"export {request.args[0]}"
        self.log_once(f"unsupported {name}", "warning", f"{name} is not supported")
        self.unsupported[name] += 1
        self._answer(request.slot, [command_return(CUDA_ERROR_NOT_SUPPORTED)])

    def handle(self, request: Request) -> None:
        """Begin or continue the call of a request."""
        slot = request.slot
        if request.api_id == lay.API_THREAD_ATTACH:
            self._attach_thread(slot)
            return
        if request.api_id == lay.API_CONTINUE:
            run = self._runs.get(slot)
            if run is None or run.resume is None:
                _log.warning("slot %d continues a call that is not waiting", slot)
                self._answer(slot, [command_return(CUDA_ERROR_UNKNOWN)])
                return
            resume, run.resume = run.resume, None
            self._guarded(run, resume)
            return
        if request.api_id == lay.API_UNSUPPORTED:
            self._unsupported(request)
            return
        if request.api_id == lay.API_CALLBACKS:
            call = Call(self.state, self.state.thread(slot), BY_NAME["cuLaunchHostFunc"], request.args)
            self._runs[slot] = run = Run(slot, call, callbacks.serve(call))
            self._advance(run, None)
            return
        self.calls += 1
        row = BY_ID.get(request.api_id) or _PRIVATE.get(request.api_id)
        if row is None:
            self.log_once(f"api {request.api_id}", "warning", f"driver function number {request.api_id} is not in the table")
            self._answer(slot, [command_return(CUDA_ERROR_NOT_SUPPORTED)])
            return
        handler = HANDLERS.get(row.name)
        if not self.state.initialised and row.name not in BEFORE_INIT:
            self._answer(slot, [command_return(CUDA_ERROR_NOT_INITIALIZED)])
            return
        call = Call(self.state, self.state.thread(slot), row, request.args, request.flags, request.thread_pointer)
        if handler is None:
            if row.client:
                self.log_once(row.name, "warning", f"{row.name} is not supported yet")
                self.unsupported[row.name] += 1
                self._answer(slot, [command_return(CUDA_ERROR_NOT_SUPPORTED)])
                return
            handler = fallback.generic
        run = Run(slot, call, coherent(call, handler) if self.state.shared else start(call, handler))
        run.below = self._runs.get(slot)
        self._runs[slot] = run
        self._advance(run, None)

    def _attach_thread(self, slot: int) -> None:
        old = self.state.threads.pop(slot, None)
        if old is not None and old.announced and self.state.initialised:
            row = BY_NAME["cuCtxSetCurrent"]
            self.shell.send_records(encode(row, (0,), thread=slot))
        self.ring.set_current_context(slot, 0)
        self._answer(slot, [command_return(CUDA_SUCCESS)])

    def resume_ready(self) -> bool:
        """Go on with calls whose replies arrived; True if there were any."""
        done = False
        while self.inbox:
            run, value = self.inbox.popleft()
            done = True
            if self._runs.get(run.slot) is run:
                self._advance(run, value)
        while self.host_calls and self._callers:
            run = self._callers.popleft()
            done = True
            if self._runs.get(run.slot) is run:
                self._advance(run, self.host_calls.popleft())
        return done

    @property
    def ready(self) -> bool:
        """`resume_ready` has something to do."""
        return bool(self.inbox or (self.host_calls and self._callers))

    def fail_all(self, result: int) -> None:
        """End every call in progress with `result`, NVML's with its own word for it: the server is lost."""
        self._pending.clear()
        self.host_calls.clear()
        self._callers.clear()
        for run in list(self._runs.values()):
            here: Run | None = run
            while here is not None:
                for gen in (here.gen, *here.outer):
                    gen.close()
                here = here.below
            run.below = None
            self._finish(run, NVML_GPU_IS_LOST if run.call.row.name in nvml_rows() else result)

    @property
    def waiting(self) -> bool:
        """Replies to calls of ours are on their way."""
        return bool(self._pending)

    @property
    def busy_slots(self) -> frozenset[int]:
        """Slots with a call in progress here."""
        return frozenset(self._runs)

    # --- generators ------------------------------------------------------------------------------------------------------
    def _guarded(self, run: Run, action: Callable[[], Any]) -> None:
        try:
            value = action()
        except LanGPUError as exc:
            value = exc
        if value is not _SUSPENDED:
            self._advance(run, value)

    def _advance(self, run: Run, value: Any) -> None:
        """Drive the generator until it waits for something or ends."""
        while True:
            try:
                effect = run.gen.throw(value) if isinstance(value, BaseException) else run.gen.send(value)
            except StopIteration as stop:
                if run.outer:
                    run.gen = run.outer.pop()
                    value = stop.value
                    continue
                self._finish(run, stop.value)
                return
            except LanGPUError as exc:
                if run.outer:
                    run.gen = run.outer.pop()
                    value = exc
                    continue
                _log.debug("%s: %s", run.call.row.name, exc)
                self._finish(run, exc.cu_result)
                return
            except Exception:
                # A bug of ours must not hang the program: it gets an error, the log gets the story.
                _log.exception("%s failed in lanGPU", run.call.row.name)
                self._finish(run, CUDA_ERROR_UNKNOWN)
                return
            try:
                value = self._perform[type(effect)](run, effect)
            except LanGPUError as exc:
                value = exc
            if value is _SUSPENDED:
                return

    def _finish(self, run: Run, result: int) -> None:
        name = run.call.row.name
        if result == (NVML_NOT_SUPPORTED if name in nvml_rows() else CUDA_ERROR_NOT_SUPPORTED):
            self.unsupported[name] += 1
        if self._runs.get(run.slot) is run:
            if run.below is None:
                del self._runs[run.slot]
            else:
                self._runs[run.slot] = run.below
        self._answer(run.slot, [*run.writes, command_return(result)])

    def _answer(self, slot: int, commands: Sequence[bytes]) -> None:
        if self.state.initialised:
            self.ring.set_ready()
        self.ring.answer_commands(slot, commands)

    def _ask_shim(self, run: Run, command: bytes, resume: Callable[[], Any]) -> object:
        """Have the calling thread carry out `command` (after the writes that wait) and go on with `resume`."""
        run.resume = resume
        commands = [*run.writes, command]
        run.writes = []
        run.write_bytes = 0
        self._answer(run.slot, commands)
        return _SUSPENDED

    # --- memory ----------------------------------------------------------------------------------------------------------
    def _flush_writes(self, run: Run) -> None:
        """Writes that wait for the call's return must be there before something reads them."""
        for command in run.writes:
            _, _, address, length = struct.unpack_from("<IIQQ", command)
            self.memory.write(address, command[24 : 24 + length])
        run.writes = []
        run.write_bytes = 0

    def _read_memory(self, run: Run, effect: effects.ReadMemory) -> Any:
        if self.memory.direct:
            try:
                if run.writes:
                    self._flush_writes(run)
                if effect.staged and effect.length <= len(self._staging):
                    view = memoryview(self._staging)[: effect.length]
                    self.memory.read_into(effect.address, view)
                    return view
                return self.memory.read(effect.address, effect.length)
            except MemoryRefusedError:
                pass
        if not effect.length:
            return bytearray()
        return self._read_by_shim(run, effect.address, bytearray(effect.length), 0)

    def _read_by_shim(self, run: Run, address: int, into: bytearray, done: int) -> Any:
        piece = min(_COMMAND_DATA_BYTES, len(into) - done)

        def resume() -> Any:
            into[done : done + piece] = self.ring.slot_data(run.slot, piece)
            if done + piece == len(into):
                return into
            return self._read_by_shim(run, address, into, done + piece)

        return self._ask_shim(run, command_read(address + done, piece), resume)

    def _read_string(self, run: Run, effect: effects.ReadString) -> Any:
        if not effect.address:
            raise ProgramFaultError("a string's address is NULL")
        if self.memory.direct:
            try:
                if run.writes:
                    self._flush_writes(run)
                return self.memory.read_string(effect.address, effect.maximum)
            except MemoryRefusedError:
                pass
        maximum = min(effect.maximum, lay.SLOT_DATA_BYTES)

        def resume() -> bytes:
            data = bytes(self.ring.slot_data(run.slot, self.ring.slot_reply_bytes(run.slot)))
            if not data.endswith(b"\0"):
                raise ProgramFaultError(f"no NUL within {maximum} bytes at {effect.address:#x}")
            return data[:-1]

        return self._ask_shim(run, command_read_string(effect.address, maximum), resume)

    def _write_memory(self, run: Run, effect: effects.WriteMemory) -> Any:
        if not effect.address:
            raise ProgramFaultError("an output's address is NULL")
        length = len(effect.data)
        if not effect.now and run.write_bytes + length <= _DEFERRED_WRITE_BYTES:
            run.writes.append(command_write(effect.address, effect.data))
            run.write_bytes += length + 32
            return None
        if self.memory.direct:
            try:
                if run.writes:
                    self._flush_writes(run)
                self.memory.write(effect.address, effect.data)
                return None
            except MemoryRefusedError:
                pass
        return self._write_by_shim(run, effect.address, memoryview(effect.data), 0)

    def _write_by_shim(self, run: Run, address: int, data: memoryview, done: int) -> Any:
        piece = data[done : done + _COMMAND_DATA_BYTES]
        if not len(piece):
            return None
        return self._ask_shim(
            run,
            command_write(address + done, piece),
            lambda: self._write_by_shim(run, address, data, done + len(piece)),
        )

    def _ask_word(self, run: Run, command: bytes, word: struct.Struct) -> object:
        """As `_ask_shim`, for a command that leaves one word in the slot's data."""

        def resume() -> int:
            value: int = word.unpack_from(self.ring.slot_data(run.slot, word.size))[0]
            return value

        return self._ask_shim(run, command, resume)

    def _syscall(self, run: Run, effect: effects.Syscall) -> Any:
        return self._ask_word(run, command_syscall(NUMBERS[effect.name], effect.args), _I64)

    def _call_program(self, run: Run, effect: effects.CallProgram) -> Any:
        return self._ask_word(run, command_call(effect.function, effect.args), _U64)

    def _write_file(self, run: Run, effect: effects.WriteFile) -> None:
        """As `_read_file`."""
        try:
            with open(self._program_path(effect.path), "wb") as file:
                file.write(effect.data)
        except OSError as exc:
            raise effects.CallError(effects.CUDA_ERROR_OPERATING_SYSTEM, f"{os.fsdecode(effect.path)}: {exc.strerror}") from exc

    def _program_path(self, path: bytes) -> bytes:
        where = b"root" if path.startswith(b"/") else b"cwd/"
        return b"/proc/%d/%s%s" % (self.memory.pid, where, path)

    def _start_thread(self, run: Run, effect: effects.StartThread) -> Any:
        return self._ask_word(run, command_thread(), _I64)

    def _next_host_call(self, run: Run, effect: effects.NextHostCall) -> Any:
        if self.host_calls:
            return self.host_calls.popleft()
        self._callers.append(run)
        return _SUSPENDED

    def _host_done(self, run: Run, effect: effects.HostDone) -> None:
        self.shell.send_host_done(effect.call)

    def _read_file(self, run: Run, effect: effects.ReadFile) -> bytes:
        """Through /proc, so that the program's root and working directory count."""
        try:
            with open(self._program_path(effect.path), "rb") as file:
                data = file.read(MAX_IMAGE_BYTES + 1)
        except OSError as exc:
            raise effects.FileError(f"{os.fsdecode(effect.path)}: {exc.strerror}") from exc
        if len(data) > MAX_IMAGE_BYTES:
            raise effects.FileError(f"{os.fsdecode(effect.path)}: larger than {MAX_IMAGE_BYTES} bytes")
        return data

    # --- records ---------------------------------------------------------------------------------------------------------
    def _next_token(self) -> int:
        self._token = self._token % 0x7FFF_FFFF + 1
        return self._token | AGENT_TOKEN

    def _send(self, name: str, values: Sequence[Value], thread: int, token: int, flags: int) -> None:
        self.shell.send_records(*encode_parts(name, values, thread=thread, token=token, flags=flags))

    def _post(self, run: Run, effect: effects.Post) -> Any:
        flags = run.call.flags if effect.flags is None else effect.flags
        if self.shell.blocking and effect.slot is None:
            return self._wait(run, effect.name, effect.values, flags, result_only=True)
        self._send(effect.name, effect.values, run.slot if effect.slot is None else effect.slot, 0, flags)
        return CUDA_SUCCESS

    def _request(self, run: Run, effect: effects.Request) -> Any:
        flags = run.call.flags if effect.flags is None else effect.flags
        return self._wait(run, effect.name, effect.values, flags, result_only=False)

    def _wait(self, run: Run, name: str, values: Sequence[Value], flags: int, *, result_only: bool) -> object:
        token = self._next_token()
        key = run.slot << 32 | token
        self._pending[key] = (_Fetching(run, 1), effects.Piece(name, (), 0, 0)) if result_only else run
        self.shell.waited(1)
        try:
            self._send(name, values, run.slot, token, flags)
        except LanGPUError:
            self._pending.pop(key, None)
            raise
        return _SUSPENDED

    def _fetch(self, run: Run, effect: effects.Fetch) -> Any:
        pieces = effect.pieces
        if not pieces:
            return CUDA_SUCCESS
        flags = run.call.flags if effect.flags is None else effect.flags
        if not self.memory.direct:
            run.outer.append(run.gen)
            run.gen = _fetch_one_by_one(pieces, flags)
            return None
        fetching = _Fetching(run, len(pieces))
        self.shell.waited(len(pieces))
        for piece in pieces:
            token = self._next_token()
            self._pending[run.slot << 32 | token] = (fetching, piece)
            self._send(piece.name, piece.values, run.slot, token, flags)
        return _SUSPENDED

    def on_reply(self, thread: int, token: int, result: int, reply: memoryview) -> bool:
        """Receiver: a reply (its header included) came. False: it is not for a call of ours but for a slot.

        The forwarder must be woken if `inbox` is not empty afterwards.
        """
        pending = self._pending.pop(thread << 32 | token, None) if self._pending else None
        if pending is None:
            return False
        if isinstance(pending, Run):
            self.inbox.append((pending, effects.Reply(result, bytes(reply[REPLY_HEADER.size :]) if not result else b"")))
            return True
        fetching, piece = pending
        if result:
            fetching.result = fetching.result or result
        elif piece.length:
            outputs = reply[REPLY_HEADER.size :]
            if len(outputs) < piece.length:
                fetching.result = fetching.result or CUDA_ERROR_UNKNOWN
            else:
                try:
                    self.memory.write(piece.address, outputs[: piece.length])
                except ProgramFaultError:
                    fetching.result = fetching.result or CUDA_ERROR_INVALID_VALUE
                except MemoryRefusedError:
                    fetching.result = fetching.result or CUDA_ERROR_UNKNOWN
        fetching.left -= 1
        if not fetching.left:
            self.inbox.append((fetching.run, fetching.result))
        return True

    # --- the rest --------------------------------------------------------------------------------------------------------
    def _connect(self, run: Run, effect: effects.Connect) -> Welcome:
        return self.shell.connect()

    def _log_line(self, run: Run, effect: effects.LogLine) -> None:
        if effect.once:
            self.log_once(effect.once, effect.level, effect.text)
        else:
            _log.log(_LEVELS.get(effect.level, logging.INFO), "%s", effect.text)

    def log_once(self, key: str, level: str, text: str) -> None:
        """Write a line unless one with this key was written."""
        if key not in self._logged:
            self._logged.add(key)
            _log.log(_LEVELS.get(level, logging.INFO), "%s", text)


_LEVELS: Final = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


def _fetch_one_by_one(pieces: Sequence[effects.Piece], flags: int) -> effects.Steps:
    """A Fetch without direct access to memory: ask for a piece, let the calling thread write it, ask for the next."""
    for piece in pieces:
        reply = yield effects.Request(piece.name, piece.values, flags)
        if reply.result:
            return int(reply.result)
        yield effects.WriteMemory(piece.address, reply.outputs[: piece.length])
    return CUDA_SUCCESS


def encode_parts(name: str, values: Sequence[Value], *, thread: int, token: int = 0, flags: int = 0) -> list[Buffer]:
    """One record as buffers: a large last blob stays where it is. Raises LocalProtocolError."""
    row = BY_NAME[name]
    last = next((i for i in range(len(values) - 1, -1, -1) if isinstance(values[i], bytes | bytearray | memoryview)), None)
    blob = values[last] if last is not None else None
    if last is None or isinstance(blob, int) or blob is None or len(blob) <= _SEPARATE_BLOB_BYTES:
        return [encode(row, values, thread=thread, token=token, flags=flags)]
    head = bytearray(encode(row, [*values[:last], b"", *values[last + 1 :]], thread=thread, token=token, flags=flags))
    length = len(blob)
    # Nothing follows the last blob, so appending it only changes the record's size and the blob's word.
    _U32.pack_into(head, 0, len(head) + pad8(length))
    _U64.pack_into(head, RECORD_HEADER.size + 8 * last, length)
    return [head, blob, bytes(pad8(length) - length)] if length % 8 else [head, blob]


def reply_bytes(thread: int, token: int, result: int) -> bytes:
    """A reply without outputs, as the server would send it."""
    return REPLY_HEADER.pack(thread, token, result, 0, 0)
