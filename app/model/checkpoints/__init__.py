"""Loading of stored models: folders and the Hub, GGUF, GPTQ and AWQ, other stored kinds."""
