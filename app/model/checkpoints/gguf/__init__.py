"""GGUF files, llama.cpp's format: configuration, tokenizer and weights in one, mostly quantised.

``file`` opens one, ``configuration`` says what model it is, ``blocks`` what its bytes
mean, ``loading`` where a tensor belongs, and puts the model together. Reading metadata and finding
tensors is transformers' part.
"""
