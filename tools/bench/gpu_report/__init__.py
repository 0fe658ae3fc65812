"""The GPU report: tests and timings in one call of ten minutes on a machine with nothing installed.

::

    python3 -m loadtest.gpu_report --out report.json

It needs the repository, torch, Triton, transformers, numba, numpy and Pillow; nothing of the
repository has to be installed, nothing is fetched. Each part is a process with its own time limit
(``parts``), so that a crash, a hang or a lack of memory in one does not affect the others
(``supervisor``). Each finding is written at once (``record``): the file is complete JSON at any
time. The tables are printed as they come, and all of them once more at the end, below a line with
the parts that failed, timed out or were skipped.

``--device cpu --tiny`` runs every part on tiny shapes, with Triton's interpreter. Its figures mean
nothing, and it skips what only a GPU has: events, graphs, the profile of a device.
"""
