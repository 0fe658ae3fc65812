"""What a GPU says of this code, in one call of ten minutes on a machine with nothing installed.

::

    python3 -m loadtest.gpu_report --out report.json

It needs the repository, torch, Triton, transformers, numpy and Pillow; nothing of the repository
has to be installed, nothing is fetched. Each part is a process of its own with its own limit
(``parts``), so that one that crashes, hangs or eats the memory takes nothing of the others with it
(``supervisor``). What a part finds is written the moment it is found (``record``): the file is
whole JSON at any time. The tables are printed as they come, and all of them once more at the end,
below a line that says which parts failed, were cut short or left out.

``--device cpu --tiny`` runs every part on tiny shapes, with Triton's interpreter. The figures say
nothing; what has not run then is what a GPU alone has: events, graphs, the profile of a device.
"""
