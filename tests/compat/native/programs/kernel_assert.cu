#include "check.h"
#include <cassert>

__global__ void check(int n) { assert(threadIdx.x < n && "too many threads"); }

int main()
{
    check<<<1, 4>>>(4);
    CUDA(cudaDeviceSynchronize());
    check<<<2, 4>>>(3);
    EXPECT(cudaErrorAssert, cudaDeviceSynchronize());
    EXPECT(cudaErrorAssert, cudaDeviceSynchronize()); // sticks
    int *p;
    EXPECT(cudaErrorAssert, cudaMalloc(&p, 4));
    CUDA(cudaDeviceReset());
    puts("ok");
}
