"""An answer: its constraint, and the pieces of its text.

formats     how a family of models marks reasoning and calls, found in its chat template
prompt      a conversation as the chat template takes it; schema_prompt: the schema that it shows
tools       the functions that may be called, and custom tools, with one text for arguments
language    the texts that an answer may be
plan        ``prepare``: all of this, decided once when the prompt is rendered
incoming    what comes in chunks: text, bytes, and arguments in other notations than JSON
reader      the text of an answer, as it comes -> pieces: content, reasoning, calls; for the engine,
            where its values are
arguments   arguments that are not JSON -> their JSON
choice      bytes and tokens of one choice of a request -> pieces
confidence  how sure the model was of each value: tokens and scored choices -> entries
spans       where values stand in the prompt
fields      its JSON values, each as soon as it is complete
warnings    of keywords that were not enforced
"""
