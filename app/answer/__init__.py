"""An answer: its constraint, and the pieces of its text.

formats     a model family's markup of reasoning and calls, detected in its chat template
prompt      conversation -> input of the chat template; schema_prompt: the schema shown in it
tools       functions that may be called, and custom tools, whose argument is one text
language    the constraint of a whole answer: reasoning, then content or calls
plan        ``prepare``: renders the prompt and decides all of this, once for all its answers
incoming    buffers for chunks of any size: text, bytes, and arguments that are not JSON
reader      text of an answer, as it arrives -> pieces: content, reasoning, calls; for the engine,
            the positions of its values
arguments   arguments in other notations -> JSON
choice      bytes and tokens of one choice of a request -> pieces
confidence  the probability of each value, from tokens and scored choices
spans       positions of the answer's values in the prompt
fields      JSON values of an answer, each as soon as it is complete
warnings    keywords that were not enforced
"""
