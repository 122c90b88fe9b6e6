"""Any kernel under the microscope: compile or read it, execute its PTX, say what it did, line by line.

What goes in: ``args`` (arguments from text, arrays and numbers), ``signature`` (a kernel's parameters), ``launchfile``
(many arguments, several kernels). What is done: ``build``, ``hostcode``, ``run``. What comes out: ``result``, filled by
``collect`` with the help of ``lines`` (source lines), ``origin`` (which tensor an access is to) and ``sass`` (what
ptxas made of the PTX). ``saved`` keeps results, ``diff`` compares two. ``api`` is ``fa_bench.profile``.
"""
