// build: --default-stream per-thread
#include "check.h"
#include <thread>
#include <vector>

__global__ void step(int *p, int n, int k)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = p[i] * 2 + k;
}

static void work(int k)
{
    const int n = 3000;
    std::vector<int> h(n);
    int *d;
    CUDA(cudaMalloc(&d, n * sizeof(int)));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < n; i++) h[i] = i;
        CUDA(cudaMemcpyAsync(d, h.data(), n * sizeof(int), cudaMemcpyHostToDevice));
        step<<<(n + 127) / 128, 128>>>(d, n, k);
        step<<<(n + 127) / 128, 128, 0, cudaStreamPerThread>>>(d, n, k);
        CUDA(cudaMemcpyAsync(h.data(), d, n * sizeof(int), cudaMemcpyDeviceToHost));
        CUDA(cudaStreamSynchronize(0));
        for (int i = 0; i < n; i++) CHECK(h[i] == i * 4 + 3 * k);
        cudaEvent_t e;
        CUDA(cudaEventCreate(&e));
        CUDA(cudaEventRecord(e));
        CUDA(cudaEventSynchronize(e));
        CUDA(cudaEventDestroy(e));
    }
    // the last error belongs to the thread
    if (k == 3) CHECK(cudaMalloc(nullptr, 1) == cudaErrorInvalidValue);
    CHECK(cudaPeekAtLastError() == (k == 3 ? cudaErrorInvalidValue : cudaSuccess));
    CUDA(cudaFree(d));
}

int main()
{
    std::vector<std::thread> threads;
    for (int k = 0; k < 6; k++) threads.emplace_back(work, k);
    for (auto &t : threads) t.join();
    CUDA(cudaDeviceSynchronize());
    puts("ok");
}
