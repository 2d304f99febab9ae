// SPDX-License-Identifier: Apache-2.0
//
// collectives.hpp: what ddh/service/comm.h says of each collective, as exchanges of a mesh.
//
// A reduction folds in rounds: a share of the elements goes to the rank that folds it. all_reduce then sends the result to
// all, so each of N ranks sends 2 (N-1)/N of the bytes.
#pragma once

#include "mesh.hpp"

namespace sockets {

struct Group {
  Group(Mesh connections, uint32_t block);
  Mesh mesh;
  const uint32_t reduce_block;
  std::vector<std::byte> scratch;  // a share from each rank
};

void all_reduce(Group& group, const ddh_coll& c);
void reduce_scatter(Group& group, const ddh_coll& c);
void all_gather(Group& group, const ddh_coll& c);
void broadcast(Group& group, const ddh_coll& c);
void all_to_all(Group& group, const ddh_coll& c);
void send(Group& group, const ddh_coll& c);
void recv(Group& group, const ddh_coll& c);
void barrier(Group& group);

}  // namespace sockets
