"""The pure core: protocols as generators over typed effects, and each decision as a plain function beside them.

Pure means: no clock, randomness or I/O, and none of the libraries that bring them. A protocol yields what it wants done
(`agent_runtime._core.effects`) and is sent what came of it; `agent_runtime._drive` holds the two loops that do it.
"""
