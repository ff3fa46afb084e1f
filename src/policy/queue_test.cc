#include "policy/queue.h"

#include "policy/place_testing.h"

namespace rubato::policy {
namespace {

JobId submit(History& history, const std::string& owner, int priority, int workers = 1) {
  JobSpec spec = job_of(workers, workers);
  spec.owner = owner;
  spec.priority = priority;
  history.pass(1s);
  return history.submit(spec);
}

// Each job's place must be the one that it has in the list.
std::vector<JobId> order(const History& history) {
  std::vector<JobId> out;
  const std::vector<const Job*> queue = queue_order(history.state);
  for (const Job* job : queue) {
    const QueuePlace place = queue_place(history.state, *job, 2);
    out.push_back(job->id);
    EXPECT_EQ(place.place, out.size());
    const auto before = std::min<std::ptrdiff_t>(2, std::ssize(out) - 1);
    const std::vector<const Job*> ahead(queue.begin(), queue.begin() + before);
    EXPECT_EQ(place.ahead, ahead);
  }
  return out;
}

TEST(Queue, PriorityThenTheOwnerWhoUsesLeastThenAge) {
  History history = nodes_of(1, 4);
  EXPECT_TRUE(order(history).empty());
  JobSpec running = job_of(4, 4);
  running.owner = "ann";
  history.running(running, {{"n-1", 4}});
  const JobId ann_1 = submit(history, "ann", 0);
  const JobId bob_1 = submit(history, "bob", 0, 2);
  const JobId bob_2 = submit(history, "bob", 0, 4);
  const JobId bob_3 = submit(history, "bob", 0);
  const JobId urgent = submit(history, "ann", 7);
  // With its first two, Bob uses as much as Ann and more: her turn comes before his third.
  EXPECT_EQ(order(history), (std::vector{urgent, bob_1, bob_2, ann_1, bob_3}));
}

TEST(Queue, OneOwnerHasOneLineAPriority) {
  History history = nodes_of(1, 4);
  const JobId low = submit(history, "ann", 0);
  const JobId high_1 = submit(history, "ann", 3);
  const JobId high_2 = submit(history, "ann", 3);
  const JobId last = submit(history, "ann", -1);
  EXPECT_EQ(order(history), (std::vector{high_1, high_2, low, last}));
}

TEST(Queue, TheFirstIsTheOneThatIsPlacedWhenThereIsRoom) {
  History history = nodes_of(1, 4);
  submit(history, "ann", 0);
  submit(history, "bob", -1);
  const JobId first = submit(history, "cid", 3, 4);
  EXPECT_EQ(order(history).front(), first);
  const PlacedJobs placed = place_now(history);
  EXPECT_TRUE(placed.placed.contains(first));
  EXPECT_EQ(placed.placed.size(), 1u);
}

}  // namespace
}  // namespace rubato::policy
