// build: -ldl
#include "check.h"
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>

__global__ void set(int *p) { *p = 4; }

int main()
{
    nvtxNameOsThreadA(1, "main");
    nvtxRangePushA("all");
    CUDA(cudaProfilerStart());
    int *d, h = 0;
    CUDA(cudaMalloc(&d, 4));
    set<<<1, 1>>>(d);
    CUDA(cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost));
    CUDA(cudaProfilerStop());
    nvtxMarkA("done");
    nvtxRangePop();
    CHECK(h == 4);
    puts("ok");
}
