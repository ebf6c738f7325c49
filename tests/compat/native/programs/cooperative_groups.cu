#include "check.h"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

__global__ void tiles(int *out)
{
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto eight = cg::tiled_partition<8>(warp);
    int sum = cg::reduce(eight, (int)block.thread_rank(), cg::plus<int>());
    int running = cg::inclusive_scan(warp, 1);
    int up = warp.shfl_up(sum, 8);
    block.sync();
    int *o = out + block.thread_rank() * 4;
    o[0] = sum;
    o[1] = running;
    o[2] = up;
    if (threadIdx.x % 2) {
        auto some = cg::coalesced_threads();
        o[3] = some.size() * 100 + some.thread_rank();
    }
}

__global__ void across(int *data, int *out, int rounds)
{
    auto grid = cg::this_grid();
    int rank = grid.thread_rank(), size = grid.size();
    for (int r = 0; r < rounds; r++) { // every thread reads what its neighbour, often in another block, wrote
        data[rank] = r * 1000 + rank;
        grid.sync();
        int from = (rank + 37) % size;
        if (data[from] != r * 1000 + from) atomicAdd(out, 1);
        grid.sync();
    }
}

int main()
{
    int *d, h[64 * 4];
    CUDA(cudaMalloc(&d, sizeof h));
    CUDA(cudaMemset(d, 0, sizeof h));
    tiles<<<1, 64>>>(d);
    CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    for (int t = 0; t < 64; t++) {
        int first = t / 8 * 8;
        CHECK(h[4 * t] == first * 8 + 28);
        CHECK(h[4 * t + 1] == t % 32 + 1);
        if (t % 32 >= 8) CHECK(h[4 * t + 2] == (first - 8) * 8 + 28);
        CHECK(h[4 * t + 3] == (t % 2 ? 1600 + t % 32 / 2 : 0));
    }
    int cooperative = 0, blocks = 0, *data, rounds = 5;
    CUDA(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
    CHECK(cooperative == 1);
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, across, 64, 0));
    CHECK(blocks > 0);
    cudaDeviceProp prop;
    CUDA(cudaGetDeviceProperties(&prop, 0));
    int grid = min(blocks * prop.multiProcessorCount, 8);
    CUDA(cudaMalloc(&data, grid * 64 * sizeof(int)));
    CUDA(cudaMemset(d, 0, sizeof(int)));
    void *args[] = {&data, &d, &rounds};
    CUDA(cudaLaunchCooperativeKernel((void *)across, dim3(grid), dim3(64), args, 0, nullptr));
    int wrong = -1;
    CUDA(cudaMemcpy(&wrong, d, sizeof wrong, cudaMemcpyDeviceToHost));
    CHECK(wrong == 0);
    EXPECT(cudaErrorCooperativeLaunchTooLarge,
           cudaLaunchCooperativeKernel((void *)across, dim3(blocks * prop.multiProcessorCount + 1), dim3(64), args, 0, nullptr));
    puts("ok");
}
