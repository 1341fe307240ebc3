"""Performs the effects of the core: two loops over one set of rules, blocking and awaiting."""

from agent_runtime._drive.context import CurrentStep, current, current_key, current_step
from agent_runtime._drive.loops import AsyncDriver, Driver
from agent_runtime._drive.world import Clock, Probe, SystemClock, World

__all__ = [
    "AsyncDriver",
    "Clock",
    "CurrentStep",
    "Driver",
    "Probe",
    "SystemClock",
    "World",
    "current",
    "current_key",
    "current_step",
]
