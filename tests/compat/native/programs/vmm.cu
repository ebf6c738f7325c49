// build: -lcuda
#include <cuda.h>
#include "check.h"

__global__ void fill(int *p, int v) { p[blockIdx.x * blockDim.x + threadIdx.x] = v + threadIdx.x; }

int main()
{
    CUDA(cudaFree(nullptr));
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    size_t grain = 0;
    DRIVER(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(grain > 0 && (grain & (grain - 1)) == 0);
    CUdeviceptr base;
    DRIVER(cuMemAddressReserve(&base, 4 * grain, 0, 0, 0));
    CUmemGenericAllocationHandle a, b;
    DRIVER(cuMemCreate(&a, grain, &prop, 0));
    DRIVER(cuMemCreate(&b, grain, &prop, 0));
    DRIVER(cuMemMap(base, grain, 0, a, 0));
    DRIVER(cuMemMap(base + grain, grain, 0, b, 0));
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    DRIVER(cuMemSetAccess(base, 2 * grain, &access, 1));
    int last = -1;
    fill<<<grain * 2 / 4 / 256, 256>>>((int *)base, 7); // crosses the seam
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(&last, (int *)(base + 2 * grain) - 1, 4, cudaMemcpyDeviceToHost));
    CHECK(last == 7 + 255);
    DRIVER(cuMemMap(base + 2 * grain, grain, 0, a, 0)); // the same memory twice
    DRIVER(cuMemSetAccess(base + 2 * grain, grain, &access, 1));
    int mark = 12345;
    CUDA(cudaMemcpy((void *)base, &mark, 4, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(&last, (void *)(base + 2 * grain), 4, cudaMemcpyDeviceToHost));
    CHECK(last == mark);
    DRIVER(cuMemUnmap(base, grain));
    DRIVER(cuMemUnmap(base + grain, grain));
    DRIVER(cuMemUnmap(base + 2 * grain, grain));
    DRIVER(cuMemRelease(a));
    DRIVER(cuMemRelease(b));
    DRIVER(cuMemAddressFree(base, 4 * grain));
    puts("ok");
}
