// run: LANGPU_EMULATE_DEVICES=2
#include "check.h"

__global__ void fill(int *p, int v) { p[threadIdx.x] = v; }
__device__ int where;
__global__ void mark(int v) { where = v; }

int main()
{
    int count = 0, current = -1, can = -1;
    CUDA(cudaGetDeviceCount(&count));
    CHECK(count == 2);
    int *d[2], h[32];
    cudaStream_t s[2];
    for (int i = 0; i < 2; i++) {
        CUDA(cudaSetDevice(i));
        CUDA(cudaStreamCreate(&s[i]));
        CUDA(cudaMalloc(&d[i], sizeof h));
        fill<<<1, 32, 0, s[i]>>>(d[i], 10 + i);
        mark<<<1, 1, 0, s[i]>>>(100 + i);
    }
    for (int i = 0; i < 2; i++) {
        CUDA(cudaSetDevice(i));
        CUDA(cudaGetDevice(&current));
        CHECK(current == i);
        CUDA(cudaStreamSynchronize(s[i]));
        CUDA(cudaMemcpy(h, d[i], sizeof h, cudaMemcpyDeviceToHost));
        for (int v : h) CHECK(v == 10 + i);
        CUDA(cudaMemcpyFromSymbol(h, where, 4));
        CHECK(h[0] == 100 + i); // each device has its own variable
        cudaPointerAttributes a;
        CUDA(cudaPointerGetAttributes(&a, d[i]));
        CHECK(a.device == i);
    }
    CUDA(cudaSetDevice(0));
    CUDA(cudaDeviceCanAccessPeer(&can, 0, 1));
    CUDA(cudaMemcpyPeer(d[0], 0, d[1], 1, sizeof h)); // needs no peer access
    CUDA(cudaMemcpy(h, d[0], sizeof h, cudaMemcpyDeviceToHost));
    CHECK(h[31] == 11);
    if (can) {
        CUDA(cudaDeviceEnablePeerAccess(1, 0));
        EXPECT(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
        (void)cudaGetLastError();
        fill<<<1, 32>>>(d[1], 77);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaMemcpy(h, d[1], sizeof h, cudaMemcpyDefault));
        CHECK(h[5] == 77);
        CUDA(cudaDeviceDisablePeerAccess(1));
    }
    cudaEvent_t e;
    CUDA(cudaSetDevice(1));
    CUDA(cudaEventCreate(&e));
    fill<<<1, 32, 0, s[1]>>>(d[1], 5);
    CUDA(cudaEventRecord(e, s[1]));
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamWaitEvent(s[0], e)); // across devices
    CUDA(cudaMemcpyPeerAsync(d[0], 0, d[1], 1, sizeof h, s[0]));
    CUDA(cudaStreamSynchronize(s[0]));
    CUDA(cudaMemcpy(h, d[0], sizeof h, cudaMemcpyDeviceToHost));
    CHECK(h[9] == 5);
    REFUSED(cudaErrorInvalidResourceHandle, cudaEventRecord(e, s[0])); // stream of another device
    puts("ok");
}
