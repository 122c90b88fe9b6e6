"""A backend in a process of its own: what crosses, who is blamed when the process breaks, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from fake_child import open_and_die, open_and_hang, open_fake, open_nothing

import fa_bench
from fa_bench import algorithms
from fa_bench.algorithms.user import load
from fa_bench.backends import remote as remote_module
from fa_bench.backends.base import RunResult, TakesTurns
from fa_bench.backends.remote import RemoteBackend, open_remote
from fa_bench.cases import AttentionShape, Case
from fa_bench.errors import Defect, DeviceLost, DeviceUnavailable, KernelFault, Unsupported
from fa_bench.model import gpus
from fa_bench.ptx.isa_row import UnsupportedInstruction

ROOT = Path(fa_bench.__file__).parents[1]
GPU = gpus.get("a100-sxm-80")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="The fake child kills itself with POSIX signals")


def case(impl: str) -> Case:
    return Case(impl, AttentionShape(1, 1, 1, 128, 128, 64, False))


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., RemoteBackend]]:
    """Open a remote fake; closed at the test's end."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    opened: list[RemoteBackend] = []

    def make(turns: bool = False, **limits: float) -> RemoteBackend:
        opened.append(open_remote(partial(open_fake, tmp_path, turns=turns), **limits))
        return opened[-1]

    yield make
    for backend in opened:
        backend.close()


def pid(result: object) -> int:
    assert isinstance(result, RunResult)
    return int(result.mem_source)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    # A process that has ended and whose parent has not asked yet is a zombie.
    stat = Path(f"/proc/{process}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def test_questions_and_results_cross(remote: Callable[..., RemoteBackend]) -> None:
    backend = remote()
    assert (backend.name, backend.device) == ("cuda", "Fake GPU")
    assert backend.implementations() == ("good", "dies")
    assert (backend.free_memory_bytes(), backend.required_bytes(case("good"))) == (1 << 30, 128)
    result = backend.run(case("good"), GPU)
    assert result.device_reason == GPU.slug
    assert pid(result) != os.getpid()
    assert pid(backend.run(case("good"), GPU)) == pid(result)


def test_it_takes_turns_if_its_child_does(remote: Callable[..., RemoteBackend]) -> None:
    assert not isinstance(remote(), TakesTurns)
    assert isinstance(remote(turns=True), TakesTurns)


def test_what_a_library_prints_does_not_break_the_protocol(
    remote: Callable[..., RemoteBackend], capfd: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(remote().run(case("prints"), GPU), RunResult)
    said = capfd.readouterr()
    assert said.out == ""
    assert "a line of a library" in said.err
    assert "a line of its C code" in said.err


def test_errors_cross_as_themselves_and_unknown_ones_keep_type_and_place(
    remote: Callable[..., RemoteBackend],
) -> None:
    backend = remote()
    with pytest.raises(Unsupported) as unsupported:
        backend.run(case("unsupported"), GPU)
    assert (unsupported.value.message, unsupported.value.hint) == ("No such kernel.", "Take another.")
    with pytest.raises(Unsupported):
        backend.required_bytes(case("unsupported"))
    # Its constructor takes something else than its message.
    with pytest.raises(UnsupportedInstruction, match=r"'wgmma\.mma_async' \(PTX line 212\)") as instruction:
        backend.run(case("instruction"), GPU)
    assert (instruction.value.text, instruction.value.line) == ("wgmma.mma_async", 212)
    with pytest.raises(MemoryError):
        backend.run(case("oom"), GPU)
    with pytest.raises(Defect, match=r"^ZeroDivisionError: division by zero \(fake_child\.py:\d+\)$"):
        backend.run(case("defect"), GPU)


def test_an_answer_that_cannot_be_read_is_said_and_the_next_one_is_read(remote: Callable[..., RemoteBackend]) -> None:
    backend = remote()
    first = pid(backend.run(case("good"), GPU))
    with pytest.raises(Defect, match="A message between processes cannot be read: ValueError: invalid literal"):
        backend.run(case("unreadable"), GPU)
    assert pid(backend.run(case("good"), GPU)) == first


def test_an_opener_that_the_child_cannot_import_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(Defect, match="ModuleNotFoundError: No module named 'fake_child'"):
        open_remote(open_fake)


def test_a_device_that_cannot_be_opened_says_why(remote: Callable[..., RemoteBackend]) -> None:
    with pytest.raises(DeviceUnavailable, match=r"There is no GPU\.") as absent:
        open_remote(open_nothing)
    assert absent.value.hint == "Buy one."
    with pytest.raises(DeviceUnavailable, match=r"The process that was to open the device ended with exit code 7\."):
        open_remote(open_and_die)


@pytest.mark.parametrize("culprit", ["faults", "lost"])
def test_a_lost_device_blames_the_case_that_ran_and_the_next_has_a_fresh_process(
    remote: Callable[..., RemoteBackend], culprit: str
) -> None:
    backend = remote()
    first = pid(backend.run(case("good"), GPU))
    with pytest.raises(KernelFault, match=rf"{culprit} failed: illegal address\."):
        backend.run(case(culprit), GPU)
    second = pid(backend.run(case("good"), GPU))
    assert second != first
    assert not is_alive(first)


@pytest.mark.parametrize(
    ("impl", "reason"),
    [
        ("dies", "dies: the process that ran it died of SIGSEGV."),
        ("killed", "killed: the process that ran it died of SIGKILL, as the system does when memory runs out."),
        ("exits", "exits: the process that ran it ended with exit code 3."),
    ],
)
def test_a_case_whose_process_dies_twice_is_blamed(
    remote: Callable[..., RemoteBackend], impl: str, reason: str
) -> None:
    backend = remote()
    with pytest.raises(KernelFault) as blamed:
        backend.run(case(impl), GPU)
    assert blamed.value.message == reason
    assert isinstance(backend.run(case("good"), GPU), RunResult)


def test_a_case_whose_process_is_killed_once_runs_again(remote: Callable[..., RemoteBackend]) -> None:
    backend = remote()
    first = pid(backend.run(case("good"), GPU))
    assert pid(backend.run(case("dies-once"), GPU)) != first


def test_a_case_that_hangs_is_ended_and_blamed(remote: Callable[..., RemoteBackend]) -> None:
    # The first beat comes after a second, which is more than the case may take.
    backend = remote(case_limit_s=0.9)
    with pytest.raises(KernelFault, match=r"^hangs: the process that ran it did not end within 1 s\.$"):
        backend.run(case("hangs"), GPU)
    assert isinstance(backend.run(case("good"), GPU), RunResult)


def test_a_process_without_a_sign_of_life_is_given_up(remote: Callable[..., RemoteBackend]) -> None:
    backend = remote()
    assert backend._child is not None
    backend._child._silence_s = 1.0  # from here on, so that a slow start of Python is not meant
    with pytest.raises(KernelFault, match=r"^stops: the process that ran it gave no sign of life for 1 s\.$"):
        backend.run(case("stops"), GPU)


def test_a_device_that_does_not_open_or_answer_is_given_up(remote: Callable[..., RemoteBackend]) -> None:
    # Beats come each second all the while: only a limit ends it.
    with pytest.raises(DeviceUnavailable, match=r"^The process that was to open the device did not end within 1 s\.$"):
        open_remote(open_and_hang, question_s=0.9)
    backend = remote()
    backend._question_s = 0.9  # from here on, so that a slow start of Python is not meant
    with pytest.raises(DeviceUnavailable, match=r"^The process of Fake GPU did not end within 1 s\.$"):
        backend.required_bytes(case("hangs"))


@pytest.mark.parametrize("escapes", [False, True])
def test_closing_does_not_wait_for_what_the_process_started(
    remote: Callable[..., RemoteBackend], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, escapes: bool
) -> None:
    monkeypatch.setattr(remote_module, "LISTENER_S", 0.5)
    backend = remote()
    backend.run(case("daemon" if escapes else "forks"), GPU)
    grandchild = int((tmp_path / "forked").read_text())
    closing = threading.Thread(target=backend.close, daemon=True)
    closing.start()
    closing.join(timeout=20)
    assert not closing.is_alive()
    if escapes:  # it has the pipe still, and is nobody's to end
        assert is_alive(grandchild)
        os.kill(grandchild, signal.SIGKILL)
    for _ in range(100):
        if not is_alive(grandchild):
            break
        time.sleep(0.1)
    assert not is_alive(grandchild)


@pytest.mark.parametrize("culprit", ["faults", "lost", "dies"])
def test_cases_that_lose_the_device_together_are_blamed_one_by_one(
    remote: Callable[..., RemoteBackend], culprit: str
) -> None:
    backend = remote(turns=True)
    assert isinstance(backend, TakesTurns)
    before, fault, after, unknown = backend.run_together([*map(case, ("good", culprit, "good", "defect"))], GPU)
    assert isinstance(before, RunResult)
    assert isinstance(fault, KernelFault)
    assert culprit in fault.message
    assert isinstance(after, RunResult)
    assert isinstance(unknown, Defect)


def test_where_the_culprit_is_known_the_others_are_timed_in_turns_again(remote: Callable[..., RemoteBackend]) -> None:
    backend = remote(turns=True)
    assert isinstance(backend, TakesTurns)
    _, fault, *others = backend.run_together([*map(case, ("good", "faults", "good", "good"))], GPU)
    assert isinstance(fault, KernelFault)
    assert [isinstance(other, RunResult) and other.nvml_mem_source for other in others] == 2 * ["2 together"]


def test_after_a_case_that_leaves_the_process_unusable_the_next_ones_run_in_a_fresh_one(
    remote: Callable[..., RemoteBackend],
) -> None:
    backend = remote(turns=True)
    assert isinstance(backend, TakesTurns)
    first = pid(backend.run(case("good-but-last"), GPU))
    second = pid(backend.run(case("good-but-last"), GPU))
    outcomes = backend.run_together([case("good"), case("good")], GPU)
    assert [isinstance(one, RunResult) and one.nvml_mem_source for one in outcomes] == 2 * ["2 together"]
    assert len({first, second, *(one.mem_source for one in outcomes if isinstance(one, RunResult))}) == 3


def test_a_kernel_of_the_users_is_known_in_the_child(remote: Callable[..., RemoteBackend]) -> None:
    backend = remote()
    algorithms.add(load(ROOT / "examples" / "row_attention.toml"))
    assert backend.implementations()[-1] == "row_attention"
    with pytest.raises(DeviceLost):
        backend.run(case("lost"), GPU)
    assert backend.implementations()[-1] == "row_attention"  # and in the next one


def test_closing_ends_the_process_in_the_middle_of_a_case(remote: Callable[..., RemoteBackend]) -> None:
    backend = remote()
    process = pid(backend.run(case("good"), GPU))
    errors: list[Exception] = []

    def run() -> None:
        try:
            backend.run(case("hangs"), GPU)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    backend.close()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert not is_alive(process)
    assert [type(error) for error in errors] == [DeviceUnavailable]  # and no fresh one was started


def test_a_question_to_a_process_that_another_thread_has_just_ended_goes_to_a_fresh_one(
    remote: Callable[..., RemoteBackend],
) -> None:
    backend = remote()
    assert backend._child is not None
    backend._child.end()
    assert isinstance(backend.run(case("good"), GPU), RunResult)


def test_nothing_is_left_running_after_the_parents_death(tmp_path: Path) -> None:
    script = """
        import sys
        from functools import partial
        from fake_child import open_fake
        from test_remote import GPU, case, open_remote
        backend = open_remote(open_fake)
        print(backend.run(case("good"), GPU).mem_source, flush=True)
        backend.run(case("hangs"), GPU)
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), str(ROOT)))}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True, env=env
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
        parent.wait()
    assert parent.returncode == -signal.SIGKILL
    for _ in range(300):
        if not is_alive(child):
            break
        time.sleep(0.1)
    assert not is_alive(child)
