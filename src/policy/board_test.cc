#include "policy/board.h"

#include <gtest/gtest.h>

#include "cluster/state_testing.h"

namespace rubato::policy {
namespace {

using namespace cluster;  // NOLINT: the words of the subject

std::vector<std::pair<std::string, int>> plain(const std::vector<Seat>& seats) {
  std::vector<std::pair<std::string, int>> out;
  for (const Seat& seat : seats) out.emplace_back(seat.node.value, seat.workers);
  return out;
}
using Seats = std::vector<std::pair<std::string, int>>;

// big-1 has 8 CPUs and 2 GPUs, small-1 and small-2 have 4 CPUs.
History three_nodes() {
  History history;
  history.configure({node_type("big", cpus(8, 64, 2), 1, 4), node_type("small", cpus(4, 16), 2, 4)});
  history.nodes_up("big", 1);
  history.nodes_up("small", 2);
  return history;
}

TEST(Board, TakesTheTightestNodeThatHoldsAll) {
  const History history = three_nodes();
  Board board(history.state);
  std::vector<Seat> seats;
  ASSERT_TRUE(board.take(cpus(1), 4, {}, seats));
  EXPECT_EQ(plain(seats), (Seats{{"small-1", 4}}));
  EXPECT_EQ(seats[0].agent, AgentId{"agent-small-1"});
}

TEST(Board, SpreadsOverFewNodesRoomiestFirst) {
  const History history = three_nodes();
  Board board(history.state);
  std::vector<Seat> seats;
  ASSERT_TRUE(board.take(cpus(1), 10, {}, seats));
  EXPECT_EQ(plain(seats), (Seats{{"big-1", 8}, {"small-1", 2}}));
  EXPECT_EQ(board.capacity(cpus(1)), 6);
}

TEST(Board, IsAllOrNothing) {
  const History history = three_nodes();
  Board board(history.state);
  std::vector<Seat> seats;
  EXPECT_FALSE(board.take(cpus(1), 17, {}, seats));
  EXPECT_FALSE(board.take(cpus(3), 5, {}, seats)) << "CPUs of two nodes make no worker";
  EXPECT_FALSE(board.take(cpus(1), 9, {NodeId{"big-1"}}, seats));
  EXPECT_TRUE(seats.empty());
  EXPECT_EQ(board.capacity(cpus(1)), 16) << "what was tried is given back";
  EXPECT_EQ(board.capacity(cpus(1), {NodeId{"big-1"}, NodeId{"nowhere"}}), 8);
  EXPECT_EQ(board.take_some(cpus(1), 20, {NodeId{"big-1"}}, seats), 8);
}

TEST(Board, KnowsEveryResource) {
  const History history = three_nodes();
  Board board(history.state);
  Resources license;
  license.set("license", 1000);
  EXPECT_EQ(board.capacity(cpus(1, 0, 1)), 2);
  EXPECT_EQ(board.capacity(cpus(1, 16)), 4 + 1 + 1);
  EXPECT_EQ(board.capacity(license), 0);
  std::vector<Seat> seats;
  ASSERT_TRUE(board.take(cpus(1, 0, 1), 2, {}, seats));
  EXPECT_EQ(board.capacity(cpus(1)), 14);
  EXPECT_EQ(board.capacity(cpus(0.5)), 28);
}

TEST(Board, AddsWhereTheJobSitsFirst) {
  const History history = three_nodes();
  Board board(history.state);
  std::vector<Seat> seats = {Seat{NodeId{"big-1"}, AgentId{"agent-big-1"}, 1}};
  ASSERT_TRUE(board.take(cpus(1), 2, {}, seats));
  EXPECT_EQ(plain(seats), (Seats{{"big-1", 3}}));
}

TEST(Board, CountsLeavingWorkersUntilTheyAreGone) {
  History history = three_nodes();
  const JobId job = history.running(job_of(1, 8), {{"small-1", 4}});
  history.place(job, {{"small-1", 1}});
  history.add(NodeDraining{NodeId{"small-2"}, "asked"});
  EXPECT_EQ(Board(history.state).capacity(cpus(1)), 8);
  EXPECT_EQ(Board(history.state, true).capacity(cpus(1)), 8 + 3);
}

TEST(Board, OccupiesWhatThereIsRoomFor) {
  const History history = three_nodes();
  Board board(history.state);
  EXPECT_TRUE(board.occupy(cpus(1), {Seat{NodeId{"big-1"}, {}, 8}}));
  EXPECT_FALSE(board.occupy(cpus(1), {Seat{NodeId{"small-1"}, {}, 5}, Seat{NodeId{"nowhere"}, {}, 1}}));
  EXPECT_EQ(board.capacity(cpus(1)), 4);
  board.give_back(cpus(1), {Seat{NodeId{"big-1"}, {}, 2}});
  EXPECT_EQ(board.capacity(cpus(1)), 6);
}

}  // namespace
}  // namespace rubato::policy
