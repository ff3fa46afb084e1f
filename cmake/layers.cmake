# A layer is a folder under src/: every .cc in it that is not a test becomes one static library.
function(rubato_layer NAME)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${NAME}/*.cc
    ${CMAKE_SOURCE_DIR}/src/${NAME}/*/*.cc)
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")
  if(sources)
    add_library(rubato_${NAME} STATIC ${sources})
    set(scope PUBLIC)
    # Unity builds of about six files halve the build; Asio and Beast files stay apart, to build in parallel.
    if(NOT NAME STREQUAL "os")
      set_target_properties(rubato_${NAME} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
    endif()
  else()
    add_library(rubato_${NAME} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(rubato_${NAME} ${scope} ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(rubato_${NAME} ${scope} ${ARG_LINK})
endfunction()

# Makes `extern const char kName[]` objects out of text files, so that the binary carries them.
function(rubato_embed NAME)
  set(out ${CMAKE_BINARY_DIR}/${NAME}.cc)
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} "-DFILES=${ARGN}" -DROOT=${CMAKE_SOURCE_DIR} -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
    VERBATIM)
  add_library(${NAME} STATIC ${out})
endfunction()

# The .py files below some folders, as an array of paths and texts (src/daemon/training_library.h).
function(rubato_embed_tree TARGET)
  set(out ${CMAKE_BINARY_DIR}/${TARGET}_library.cc)
  set(patterns ${ARGN})
  list(TRANSFORM patterns PREPEND ${CMAKE_SOURCE_DIR}/)
  list(TRANSFORM patterns APPEND /*.py)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${patterns})
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} "-DFOLDERS=${ARGN}" -DROOT=${CMAKE_SOURCE_DIR} -P ${CMAKE_SOURCE_DIR}/cmake/embed_tree.cmake
    DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed_tree.cmake
    VERBATIM)
  target_sources(${TARGET} PRIVATE ${out})
  set_source_files_properties(${out} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Version, commit and build type, written again only when they change.
function(rubato_stamp)
  add_custom_target(stamp
    COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_BINARY_DIR}/stamp/build_stamp.h -DVERSION=${PROJECT_VERSION}
      -DTYPE=${CMAKE_BUILD_TYPE} -DCOMPILER=${CMAKE_CXX_COMPILER_ID}-${CMAKE_CXX_COMPILER_VERSION}
      -DROOT=${CMAKE_SOURCE_DIR} -P ${CMAKE_SOURCE_DIR}/cmake/stamp.cmake
    BYPRODUCTS ${CMAKE_BINARY_DIR}/stamp/build_stamp.h
    VERBATIM)
  foreach(target ${ARGN})
    add_dependencies(${target} stamp)
    target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/stamp)
  endforeach()
endfunction()
