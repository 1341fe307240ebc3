"""What users import: both faces say the same, everything is documented, errors travel between processes."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from typing import TYPE_CHECKING, Any

import pytest

import agent_runtime
from agent_runtime import AsyncRuntime, AsyncSession, Outcome, Runtime, Session, Status, errors

if TYPE_CHECKING:
    from collections.abc import Iterator

PUBLIC_MODULES = ("agent_runtime", "agent_runtime.config", "agent_runtime.ledger", "agent_runtime.testing")
FACES = [(Session, AsyncSession), (Runtime, AsyncRuntime)]


def surface(cls: type) -> dict[str, Any]:
    """Return the public members of a class by name."""
    return {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_")}


def plain(member: Any) -> Any:
    """Return the function behind a member."""
    return member.__func__ if isinstance(member, classmethod | staticmethod) else member


@pytest.mark.parametrize(("blocking", "awaiting"), FACES, ids=["session", "runtime"])
def test_both_faces_have_the_same_names(blocking: type, awaiting: type) -> None:
    """What can be called on one can be called on the other."""
    assert set(surface(blocking)) == set(surface(awaiting))


@pytest.mark.parametrize(("blocking", "awaiting"), FACES, ids=["session", "runtime"])
def test_both_faces_take_the_same_parameters(blocking: type, awaiting: type) -> None:
    """Names, kinds, order and defaults of the parameters are equal, those of the constructor too."""
    others = surface(awaiting)
    for name, member in {**surface(blocking), "__init__": blocking.__init__}.items():
        if not callable(plain(member)):
            continue
        other = plain(others.get(name, awaiting.__init__))
        told = [
            [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]
            for function in (plain(member), other)
        ]
        assert told[0] == told[1], name


@pytest.mark.parametrize(("blocking", "awaiting"), FACES, ids=["session", "runtime"])
def test_both_faces_say_the_same_about_themselves(blocking: type, awaiting: type) -> None:
    """The docstrings of their members are equal."""
    others = surface(awaiting)
    for name, member in surface(blocking).items():
        assert inspect.getdoc(plain(member)) == inspect.getdoc(plain(others[name])), name


@pytest.mark.parametrize(("blocking", "awaiting"), FACES, ids=["session", "runtime"])
def test_what_waits_on_one_face_is_awaited_on_the_other(blocking: type, awaiting: type) -> None:
    """A member that returns at once returns at once on both: a blocking one is no coroutine function."""
    assert not [name for name, member in surface(blocking).items() if inspect.iscoroutinefunction(plain(member))]
    at_once = {"id", "alias", "report", "steps", "explain", "branch", "ledger", "register"}
    for name, member in surface(awaiting).items():
        if name in at_once and awaiting is AsyncSession:
            assert not inspect.iscoroutinefunction(plain(member)), name


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_all_is_what_is_there(name: str) -> None:
    """``__all__`` is sorted for reading, names nothing twice and nothing that is not there."""
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    missing = [entry for entry in module.__all__ if not hasattr(module, entry)]
    assert missing == []


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_everything_public_is_named_in_all(name: str) -> None:
    """A name without an underscore that a package's ``__init__`` holds is in ``__all__``, or is a module of it."""
    module = importlib.import_module(name)
    modules = {found.name for found in pkgutil.iter_modules(module.__path__)}
    loose = {
        entry
        for entry, value in vars(module).items()
        if not entry.startswith("_") and entry not in modules and not inspect.ismodule(value)
    }
    assert loose - set(module.__all__) - {"annotations"} == set()


def documented() -> Iterator[tuple[str, Any]]:
    for name in PUBLIC_MODULES:
        module = importlib.import_module(name)
        yield name, module
        for entry in module.__all__:
            value = getattr(module, entry)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            yield f"{name}.{entry}", value
            if inspect.isclass(value) and value.__module__.startswith("agent_runtime"):
                for member, found in surface(value).items():
                    if inspect.isfunction(plain(found)) or isinstance(found, property):
                        yield f"{name}.{entry}.{member}", getattr(value, member)


def test_every_public_object_has_a_docstring() -> None:
    """Classes, functions, methods and properties say what they are in a first line that stands alone."""
    silent = [name for name, value in documented() if not inspect.getdoc(value)]
    assert silent == []
    long_heads = [name for name, value in documented() if len((inspect.getdoc(value) or "").splitlines()[0]) > 120]
    assert long_heads == []


def error_classes() -> list[type[errors.AgentRuntimeError]]:
    return [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.AgentRuntimeError)
    ]


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_errors_pickle_and_keep_their_ids(cls: type[errors.AgentRuntimeError]) -> None:
    """An error that crosses a process keeps its class, its message, its ids and its outcome."""
    outcome = Outcome(status=Status.UNKNOWN, step="step_001", tool="debit", session_id="s", value={"a": [1]})
    error = cls("what happened", session_id="s", step="step_001", key="k", operation_id="o", outcome=outcome)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == "what happened"
    assert vars(again) == vars(error)


def test_ids_have_defaults() -> None:
    """An error that was made without ids still has them, as None."""
    for cls in error_classes():
        if issubclass(cls, errors.StepError):
            error = cls("what happened")
            assert (error.outcome, error.session_id, error.step, error.key, error.operation_id) == (None,) * 5


def test_the_tree_at_the_top_of_the_module_is_the_tree() -> None:
    """The module's docstring names each class under its base."""
    stack: list[str] = []
    drawn: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if not line.lstrip().startswith("* "):
            continue
        depth = (len(line) - len(line.lstrip())) // 4
        name = line.split()[1]
        stack[depth:] = [name]
        if depth:
            drawn[name] = stack[depth - 1]
    real = {cls.__name__: cls.__bases__[0].__name__ for cls in error_classes() if cls is not errors.AgentRuntimeError}
    assert drawn == real


def test_what_the_readme_teaches_is_importable_from_the_top() -> None:
    """Users import from the package itself."""
    for name in ("Idempotency", "Runtime", "Session", "Tool", "ToolContract", "StepError", "StepUnknown", "tool"):
        assert name in agent_runtime.__all__
