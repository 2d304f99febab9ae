# SPDX-License-Identifier: Apache-2.0
#
# cmake -DNM=nm -DREADELF=readelf -DFILE=x.so -P ddh_check_plugin.cmake: fails unless x.so defines exactly one dynamic symbol,
# the entry, and names OpenMP or LibTorch in its note if it links one.
execute_process(COMMAND "${NM}" -D --defined-only "${FILE}" OUTPUT_VARIABLE text RESULT_VARIABLE rc ERROR_VARIABLE why)
if(NOT rc EQUAL 0)
  message(FATAL_ERROR "nm can't read ${FILE}: ${why}")
endif()
string(STRIP "${text}" text)
string(REPLACE "\n" ";" lines "${text}")
list(LENGTH lines count)
if(NOT count EQUAL 1 OR NOT text MATCHES " T ddh_plugin_entry_0$")
  file(REMOVE "${FILE}") # so that the next build tries again
  message(FATAL_ERROR "a plugin exports ddh_plugin_entry_0 and nothing else; ${FILE} exports ${count} symbols:\n${text}\n"
                      "End the source with DDH_CXX_PLUGIN or DDH_PLUGIN, and export nothing by hand.")
endif()
# The start-up object that -ffast-math links in sets flush-to-zero for the whole process.
execute_process(COMMAND "${NM}" "${FILE}" OUTPUT_VARIABLE text ERROR_QUIET)
if(text MATCHES " set_fast_math")
  file(REMOVE "${FILE}")
  message(FATAL_ERROR "${FILE} was linked with -ffast-math, which switches the host's threads to flush-to-zero; drop it.")
endif()
# Without an entry the host sets no number of threads, and every rank starts one thread for each core.
if(READELF)
  execute_process(COMMAND "${READELF}" -d "${FILE}" OUTPUT_VARIABLE text ERROR_QUIET)
  file(STRINGS "${FILE}" note REGEX "\"libraries\":\\[" LIMIT_COUNT 1)
  if(text MATCHES "NEEDED[^\n]*lib(gomp|omp|iomp5)\\." AND NOT note MATCHES "libgomp|OMP_NUM_THREADS")
    file(REMOVE "${FILE}")
    message(FATAL_ERROR "${FILE} links OpenMP, but does not name it, so every rank would start a thread for each core; add "
                        "ddh_openmp_library(<target> PRIVATE <version>) to its CMakeLists.txt")
  endif()
  if(text MATCHES "NEEDED[^\n]*lib(torch|c10)" AND NOT note MATCHES "libtorch")
    file(REMOVE "${FILE}")
    message(FATAL_ERROR "${FILE} links LibTorch, but does not name it; link ddhost::torch, or call ddh_library")
  endif()
endif()
