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

std::vector<JobId> order(const History& history) {
  std::vector<JobId> out;
  for (const Job* job : queue_order(history.state)) out.push_back(job->id);
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

TEST(Queue, TheFirstIsTheOneThatIsPlacedWhenThereIsRoom) {
  History history = nodes_of(1, 4);
  submit(history, "ann", 0);
  submit(history, "bob", -1);
  const JobId first = submit(history, "cid", 3, 4);
  EXPECT_EQ(order(history).front(), first);
  const Placement placed = place_now(history);
  EXPECT_TRUE(placed.placed.contains(first));
  EXPECT_EQ(placed.placed.size(), 1u);
}

}  // namespace
}  // namespace rubato::policy
