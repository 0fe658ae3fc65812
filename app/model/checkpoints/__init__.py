"""From what is stored to a model: folders and the Hub, GGUF, GPTQ and AWQ, other stored kinds."""
