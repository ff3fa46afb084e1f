#include "agent/error_file.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

namespace rubato::agent {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(ErrorFile, OfTorchsRecordHasMessageAndTraceback) {
  const ErrorReport report = read_error_report(
      R"({"message": {"message": "ValueError: x \"y\"", "extraInfo": {"py_callstack": "Traceback\n  File", )"
      R"("timestamp": "1669000000"}}})");
  EXPECT_EQ(report.message, "ValueError: x \"y\"");
  EXPECT_EQ(report.traceback, "Traceback\n  File");
}

// FileNotFoundError of a file whose name is not UTF-8, as Python's json writes it.
TEST(ErrorFile, MayNameAFileThatIsNotUtf8) {
  const std::string bytes = R"({"message": {"message": "no file \\ 'caf\udce9'", "extraInfo": )"
                            R"({"py_callstack": "\ud83d\ude00 \udcff\n\\udcff \ud83d"}}})";
  const ErrorReport report = read_error_report(bytes);
  EXPECT_EQ(report.message, R"(no file \ 'caf\udce9')");
  EXPECT_EQ(report.traceback, "\xF0\x9F\x98\x80 \\udcff\n\\udcff \\ud83d");
  elastic::Failure failure;
  failure.exit_code = 1;
  const auto document = nlohmann::json::parse(failure_document(failure, bytes, WallTime{}));
  EXPECT_EQ(document["message"]["message"], R"(no file \ 'caf\udce9')");
  EXPECT_TRUE(has(read_error_report("{\"message\": \"\\ud").message, "torn"));
  EXPECT_TRUE(has(read_error_report("{\"message\": \"\\").message, "torn"));
}

TEST(ErrorFile, MayHaveAPlainMessage) {
  const ErrorReport report = read_error_report(R"({"message": "killed by the reaper", "timestamp": 17})");
  EXPECT_EQ(report.message, "killed by the reaper");
  EXPECT_EQ(report.traceback, "");
}

TEST(ErrorFile, MayHaveNoTraceback) {
  EXPECT_EQ(read_error_report(R"({"message": {"message": "m"}})").message, "m");
  EXPECT_EQ(read_error_report(R"({"message": {"message": "m", "extraInfo": null}})").traceback, "");
  EXPECT_EQ(read_error_report(R"({"message": {"message": "m", "extraInfo": {"py_callstack": 3}}})").traceback, "");
}

TEST(ErrorFile, ThatIsTornIsShownAsItIs) {
  const ErrorReport report = read_error_report("{\"message\": \"ValueErr");
  EXPECT_TRUE(has(report.message, "torn")) << report.message;
  EXPECT_TRUE(has(report.message, "21 bytes")) << report.message;
  EXPECT_TRUE(has(report.traceback, "ValueErr"));
}

TEST(ErrorFile, ThatIsEmptyIsTorn) {
  const ErrorReport report = read_error_report("");
  EXPECT_TRUE(has(report.message, "0 bytes")) << report.message;
  EXPECT_EQ(report.traceback, "");
}

TEST(ErrorFile, OfAnotherKindSaysThatItHasNoMessage) {
  for (const char* foreign : {"null", "17", "[]", "{}", "{\"message\": 3}", "{\"message\": {\"message\": []}}"}) {
    EXPECT_TRUE(has(read_error_report(foreign).message, "no message")) << foreign;
  }
}

TEST(ErrorFile, ThatIsHugeIsCutInTheMiddle) {
  const std::string text(1'000'000, 'x');
  const ErrorReport report =
      read_error_report(R"({"message": {"message": "first )" + text + R"( last", "extraInfo": )" +
                        R"({"py_callstack": "top )" + text + R"( bottom"}}})");
  for (const std::string& part : {report.message, report.traceback}) {
    EXPECT_LT(part.size(), 40'000u);
    EXPECT_TRUE(has(part, "characters left out"));
  }
  EXPECT_TRUE(report.message.starts_with("first ") && report.message.ends_with(" last"));
  EXPECT_TRUE(report.traceback.starts_with("top ") && report.traceback.ends_with(" bottom"));
  EXPECT_LT(read_error_report("{" + text).traceback.size(), 40'000u);
}

// A worker may write what it likes; its agent must outlive it.
TEST(ErrorFile, ThatIsNestedDeeplyDoesNotOverflowTheStack) {
  const size_t depth = 300'000;
  const std::string nest = std::string(depth, '[') + std::string(depth, ']');
  EXPECT_EXIT(
      {
        read_error_report(R"({"message": {"message": "m", "extraInfo": )" + nest + "}}");
        exit(0);
      },
      testing::ExitedWithCode(0), "");
}

RC_GTEST_PROP(ErrorFile, AnyBytesGiveAMessage, (const std::string& bytes)) {
  RC_ASSERT(!read_error_report(bytes).message.empty());
  RC_ASSERT(!read_error_report("{\"message\": {\"message\": " + bytes + "}}").message.empty());
}

TEST(ErrorFile, OneOfManyMegabytesIsNotReadThrough) {
  const std::string huge = R"({"message": {"message": ")" + std::string(kErrorFileMax, 'x') + R"("}})";
  const ErrorReport report = read_error_report(huge);
  EXPECT_EQ(report.message, "(its error file is larger than 16 MiB; this is how it begins)");
  EXPECT_EQ(report.traceback.substr(0, 30), huge.substr(0, 30));
  EXPECT_LT(report.traceback.size(), 100'000u);
  elastic::Failure failure;
  failure.exit_code = 1;
  failure.message = report.message;
  EXPECT_LT(failure_document(failure, huge, WallTime{}).size(), 100'000u);
}

using Json = nlohmann::json;

TEST(LauncherErrorFile, IsTheWorkersWithItsExitCode) {
  elastic::Failure failure;
  failure.exit_code = 1;
  const std::string worker =
      R"({"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": "trace", "timestamp": "7"}}})";
  const Json document = Json::parse(failure_document(failure, worker, WallTime{}));
  EXPECT_EQ(document, Json::parse(R"({"message": {"message": "ValueError: boom", "errorCode": 1,
                                      "extraInfo": {"py_callstack": "trace", "timestamp": "7"}}})"));
}

TEST(LauncherErrorFile, SaysWhatIsKnownWhenTheWorkerLeftNone) {
  elastic::Failure failure;
  failure.rank = 3;
  failure.signal = 9;
  for (const auto& bytes : {std::optional<std::string>(), std::optional<std::string>("{\"mess")}) {
    const Json document = Json::parse(failure_document(failure, bytes, WallTime{}));
    EXPECT_EQ(document["message"]["errorCode"], -9);
    EXPECT_NE(document["message"]["message"].get<std::string>().find("SIGKILL"), std::string::npos);
  }
}

TEST(LauncherErrorFile, LeavesAMessageOfAnotherFormAsItIs) {
  elastic::Failure failure;
  failure.exit_code = 2;
  EXPECT_EQ(Json::parse(failure_document(failure, R"({"message": "plain"})", WallTime{})),
            Json::parse(R"({"message": "plain"})"));
}

}  // namespace
}  // namespace rubato::agent
