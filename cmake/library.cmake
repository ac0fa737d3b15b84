# cmake -DPARTS=common.lua;queue.lua -DNAME=admitone_1 -DOUTPUT=admitone.lua -P library.cmake
# Puts the parts of a Redis function library one behind the other, below the line that names it.
set(text "#!lua name=${NAME}\n")
file(WRITE ${OUTPUT} "${text}")
foreach(part ${PARTS})
  file(READ ${part} text)
  file(APPEND ${OUTPUT} "${text}")
endforeach()
