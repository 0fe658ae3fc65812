"""GGUF files, llama.cpp's format: configuration, tokenizer and weights in one, mostly quantised.

``core.gguf_file`` opens one and reads its metadata, ``configuration`` converts that to a
configuration of transformers, ``blocks`` decodes tensors, and ``loading`` assigns them to
parameters and builds the model.
"""
