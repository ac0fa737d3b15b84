# cmake -DFOLDER=web "-DFILES=web/a.css;web/lang/en.json" -DHEADER=api/page_files.h -DOUTPUT=x.c
#       -P embed_folder.cmake
# Turns the files of a folder into one table of names and bytes: embedded_files[], ending with a
# file without a name.
set(arrays "")
set(rows "")
set(number 0)
foreach(file ${FILES})
  file(RELATIVE_PATH name ${FOLDER} ${file})
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${hex}")
  string(APPEND arrays "static const char file_${number}[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${name}\", {file_${number}, sizeof file_${number} - 1}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\n${arrays}\n"
     "const struct page_file embedded_files[] = {\n${rows}    {0},\n};\n")
