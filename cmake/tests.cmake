# Unit tests: src/<layer>/*_test.cc becomes one executable per layer. End-to-end tests: tests/e2e/*.
find_package(GTest REQUIRED)
find_path(RAPIDCHECK_INCLUDE rapidcheck.h REQUIRED)
find_library(RAPIDCHECK_LIBRARY rapidcheck REQUIRED)
include(GoogleTest)

# Where this checkout is, for tests that read its files (src/core/source_testing.h).
file(CONFIGURE OUTPUT source_folder.cc CONTENT [[
namespace rubato {
extern const char kSourceFolder[];
const char kSourceFolder[] = "@CMAKE_SOURCE_DIR@";
}  // namespace rubato
]] @ONLY)
add_library(rubato_source_folder STATIC ${CMAKE_BINARY_DIR}/source_folder.cc)

# Large tests, which build in parallel, and those that name their own things alike.
set(tests_apart cli clouds cluster head os provider sim simulate)

function(rubato_layer_tests NAME)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${NAME}/*_test.cc
    ${CMAKE_SOURCE_DIR}/src/${NAME}/*/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${NAME}_test ${sources})
  # As in rubato_layer(): most of a small test's time is that of the headers it includes.
  if(NOT NAME IN_LIST tests_apart)
    set_target_properties(${NAME}_test PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
  endif()
  target_include_directories(${NAME}_test PRIVATE ${RAPIDCHECK_INCLUDE})
  target_link_libraries(${NAME}_test PRIVATE rubato_${NAME} ${ARGN} rubato_source_folder ${RAPIDCHECK_LIBRARY}
    GTest::gtest GTest::gtest_main)
  gtest_discover_tests(${NAME}_test TEST_PREFIX "${NAME}/" DISCOVERY_TIMEOUT 600
    PROPERTIES TIMEOUT 900 LABELS unit)
endfunction()

foreach(layer core world model api elastic cluster policy reconcile terminal daemon cli)
  rubato_layer_tests(${layer})
endforeach()
rubato_layer_tests(client rubato_cli)  # they type commands
rubato_layer_tests(deploy rubato_cli)
rubato_layer_tests(agent rubato_sim)
rubato_layer_tests(node rubato_os rubato_sim)
rubato_layer_tests(provider rubato_os rubato_sim)
rubato_layer_tests(archive rubato_os rubato_sim)
rubato_layer_tests(rest rubato_sim)
rubato_layer_tests(aws rubato_os rubato_sim)
rubato_layer_tests(gcp rubato_os rubato_sim)
rubato_layer_tests(petctl rubato_os rubato_sim)
rubato_layer_tests(kubernetes rubato_sim)
rubato_layer_tests(elasticjob rubato_sim)
rubato_layer_tests(clouds rubato_os rubato_sim)
rubato_layer_tests(os)
rubato_layer_tests(head rubato_sim)
rubato_layer_tests(sim rubato_node rubato_head)
rubato_layer_tests(simulate)

# Whole clusters in virtual time, seed after seed: `make soak` plays more of them.
function(rubato_seeds SCENARIO SEEDS)
  add_test(NAME simulate/${SCENARIO}:${SEEDS}
    COMMAND rubato simulate ${CMAKE_SOURCE_DIR}/examples/scenarios/${SCENARIO}.yaml --seeds ${SEEDS})
  set_tests_properties(simulate/${SCENARIO}:${SEEDS} PROPERTIES LABELS unit TIMEOUT 1800)
endfunction()
rubato_seeds(chaos 1..900)
rubato_seeds(spot 1..600)
rubato_seeds(steady 1..600)
rubato_seeds(changes 1..300)
rubato_seeds(adaptive 1..200)
rubato_seeds(pauses 1..150)
rubato_seeds(pauses 930..1080)  # 935 and 1071 gave a healthy node up
rubato_seeds(partitions 1..150)
rubato_seeds(partitions 600..650)  # 628: an agent that woke up with an old order found witnesses
rubato_seeds(partitions 1120..1160)  # 1144: the same, and took the head's death for leave

add_test(NAME tidy COMMAND ${CMAKE_SOURCE_DIR}/tools/tidy.py WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
add_test(NAME tidy_test COMMAND ${CMAKE_SOURCE_DIR}/tools/tidy_test.py --quiet)
add_test(NAME links_test COMMAND ${CMAKE_SOURCE_DIR}/tools/links_test.py)
add_test(NAME test_test COMMAND ${CMAKE_SOURCE_DIR}/tools/test_test.py)
add_test(NAME trial_test COMMAND /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/trial/checks_test.py)
set_tests_properties(tidy tidy_test links_test test_test trial_test PROPERTIES LABELS unit)

if(RUBATO_STATIC)
  add_test(NAME e2e/chroot COMMAND ${CMAKE_SOURCE_DIR}/tests/chroot.sh $<TARGET_FILE:rubato>)
  set_tests_properties(e2e/chroot PROPERTIES LABELS e2e TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()

# A short one; `make trial STRIKES=500` is the real one.
add_test(NAME e2e/trial COMMAND /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tests/trial/trial.py --strikes 10 --seed 1
  --pause-max 4 --jobs 5 --lines-max 2000)
set_tests_properties(e2e/trial PROPERTIES LABELS e2e TIMEOUT 900 ENVIRONMENT "RUBATO=$<TARGET_FILE:rubato>")

# An end-to-end test is a program tests/e2e/<name>_e2e.py; each `test_*` method in it is one ctest entry.
file(GLOB e2e CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/e2e/*_e2e.py)
foreach(script ${e2e})
  get_filename_component(name ${script} NAME_WE)
  file(STRINGS ${script} methods REGEX "^    def test_")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
  foreach(method ${methods})
    string(REGEX REPLACE "^    def (test_[A-Za-z0-9_]+).*" "\\1" method "${method}")
    add_test(NAME e2e/${name}.${method} COMMAND /usr/bin/python3 ${script} -k "*.${method}")
    set_tests_properties(e2e/${name}.${method} PROPERTIES TIMEOUT 900 LABELS e2e
      ENVIRONMENT "RUBATO=$<TARGET_FILE:rubato>")
  endforeach()
endforeach()

# The training library: plain unittest programs, with Debian's PyTorch.
file(GLOB library_tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/tests/*_test.py)
foreach(script ${library_tests})
  get_filename_component(name ${script} NAME_WE)
  add_test(NAME python/${name} COMMAND /usr/bin/python3 -B ${script})
  set_tests_properties(python/${name} PROPERTIES LABELS unit TIMEOUT 600)
endforeach()
