# cmake -DINPUT=docs/openapi.json -DSYMBOL=openapi_json -DOUTPUT=x.c -P embed.cmake
# Turns a file into a zero-terminated char array, so that the program needs no file beside it.
file(READ ${INPUT} hex HEX)
string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${hex}")
file(WRITE ${OUTPUT} "extern const char ${SYMBOL}[];\nconst char ${SYMBOL}[] = {${bytes}0};\n")
