// bench_journal [FOLDER] [SECONDS]: durable appends a second to a journal in FOLDER (default: here), one line a case.
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "os/sqlite_journal.h"

namespace rubato::os {
namespace {

constexpr size_t kRecordBytes = 300;  // a typical event of a job

Task<void> append_until(Journal& journal, Runtime& runtime, Instant end, uint64_t& appended) {
  while (runtime.now() < end) {
    std::vector<std::string> records(1, std::string(kRecordBytes, 'r'));
    co_await journal.append(std::move(records));
    ++appended;
  }
}

Task<int> measure(Runtime& runtime, std::string folder, int appenders, Duration span) {
  const std::unique_ptr<SqliteJournal> journal =
      co_await SqliteJournal::open(runtime, folder + "/journal.db", folder + "/journal.note");
  uint64_t appended = 0;
  const Instant begin = runtime.now();
  Scope scope(runtime);
  for (int i = 0; i < appenders; ++i) scope.spawn(append_until(*journal, runtime, begin + span, appended));
  co_await scope.join();
  const double took_s = to_seconds(runtime.now() - begin);
  printf("%3d appenders: %8.0f durable appends/s, %6.0f commits/s, %6.2f ms an append\n", appenders,
         static_cast<double>(appended) / took_s, static_cast<double>(journal->commits()) / took_s,
         1000 * took_s * appenders / static_cast<double>(appended));
  co_return 0;
}

int run(std::string where, Duration span) {
  where += "/rubato-bench-XXXXXX";
  if (!::mkdtemp(where.data())) {
    perror(where.c_str());
    return 1;
  }
  int code = 0;
  try {
    for (const int appenders : {1, 8, 64, 512}) {
      Runtime runtime;
      runtime.run(measure(runtime, where, appenders, span));
    }
  } catch (const Error& error) {
    fputs(render(error).c_str(), stderr);
    code = exit_code(error);
  }
  std::filesystem::remove_all(where);
  return code;
}

}  // namespace
}  // namespace rubato::os

int main(int argc, char** argv) {
  const double span_s = argc > 2 ? atof(argv[2]) : 2;
  if (argc > 3 || span_s <= 0) {
    fputs("usage: bench_journal [FOLDER] [SECONDS]\n", stderr);
    return 2;
  }
  return rubato::os::run(argc > 1 ? argv[1] : ".", rubato::seconds(span_s));
}
