"""JSON text in the one form that answers have.

whitespace  forms of white space
ranges      integers between two bounds
decimals    numbers with a fraction, or an exponent
multiples   multiples of a number, digit by digit, and numbers without multiples or single values
text        strings, members, containers, any value
literals    the same in the notation of another language
"""
