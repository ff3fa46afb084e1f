// For the tests of this folder and of those above it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "core/error.h"

namespace rubato::cli {

// A path of this process's own: tests run side by side.
inline std::string scratch(const std::string& name) {
  return ::testing::TempDir() + "/" + name + "." + std::to_string(::getpid());
}

// Runs the function, which must throw a usage Error, and returns that.
template <class Function>
Error usage_error(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kUsage) << error.message;
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kFailed, "nothing was thrown");
}

}  // namespace rubato::cli
