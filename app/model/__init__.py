"""A transformers causal LM run as ragged steps over a paged cache, and the sampler."""
