cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND git -C ${ROOT} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit "unknown")
endif()
set(text "#pragma once\n#define RUBATO_VERSION \"${VERSION}\"\n#define RUBATO_COMMIT \"${commit}\"\n#define RUBATO_BUILD \"${TYPE}\"\n#define RUBATO_COMPILER \"${COMPILER}\"\n")
file(CONFIGURE OUTPUT ${OUT} CONTENT "${text}" @ONLY)
