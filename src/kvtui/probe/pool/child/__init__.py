"""The program that runs in the pool child: standard library and torch, nothing installed.

`kvtui.probe.pack` joins these modules (and `kvtui.core.pools.spec`) into one line that travels
over standard input, so they stay runnable under Python 3.10 and import nothing else of kvtui.
"""
