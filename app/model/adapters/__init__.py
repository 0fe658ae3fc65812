"""LoRA adapters (Hu et al., 2021), several in one step: ``y += B (A x)``, by each token's own.

``peft.py`` reads peft's files; ``targets.py`` finds the modules that can be adapted and adds to
their results; ``slots.py`` loads and holds adapters and multiplies on the CPU,
``app.model.cuda.kernels.adapters`` on a GPU.
"""
