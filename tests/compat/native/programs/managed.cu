#include "check.h"

__managed__ int counter = 5;
__managed__ float table[64];

__global__ void work(int *p, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] += i;
    if (i == 0) counter *= 2;
    if (i < 64) table[i] = i * 0.25f;
}

struct Node { int value; Node *next; };
__global__ void walk(Node *head, int *sum) { for (Node *n = head; n; n = n->next) { *sum += n->value; n->value = -n->value; } }

int main()
{
    int value = 0;
    CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrManagedMemory, 0));
    CHECK(value == 1);
    const int n = 70000;
    int *p;
    CUDA(cudaMallocManaged(&p, n * sizeof(int)));
    CHECK(counter == 5);
    for (int i = 0; i < n; i++) p[i] = 1000;
    counter = 21;
    work<<<(n + 255) / 256, 256>>>(p, n);
    CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < n; i++) CHECK(p[i] == 1000 + i);
    CHECK(counter == 42);
    for (int i = 0; i < 64; i++) CHECK(table[i] == i * 0.25f);
    p[3] = 77; // host writes between launches
    work<<<(n + 255) / 256, 256>>>(p, n);
    CUDA(cudaDeviceSynchronize());
    CHECK(p[3] == 80 && p[69999] == 1000 + 2 * 69999 && counter == 84);
    CUDA(cudaMemset(p, 0, n * sizeof(int)));
    CUDA(cudaDeviceSynchronize());
    CHECK(p[500] == 0);
    CUDA(cudaMemPrefetchAsync(p, n * sizeof(int), cudaMemLocation{cudaMemLocationTypeDevice, 0}, 0, 0));
    CUDA(cudaMemAdvise(p, n * sizeof(int), cudaMemAdviseSetReadMostly, cudaMemLocation{cudaMemLocationTypeDevice, 0}));
    cudaPointerAttributes attributes;
    CUDA(cudaPointerGetAttributes(&attributes, p));
    CHECK(attributes.type == cudaMemoryTypeManaged && attributes.hostPointer == p && attributes.devicePointer == p);

    Node *nodes; // pointers inside managed memory are the same on both sides
    int *sum;
    CUDA(cudaMallocManaged(&nodes, 10 * sizeof(Node)));
    CUDA(cudaMallocManaged(&sum, sizeof(int)));
    *sum = 0;
    for (int i = 0; i < 10; i++) nodes[i] = Node{i + 1, i < 9 ? &nodes[i + 1] : nullptr};
    walk<<<1, 1>>>(nodes, sum);
    CUDA(cudaDeviceSynchronize());
    CHECK(*sum == 55 && nodes[9].value == -10);
    CUDA(cudaFree(nodes));
    CUDA(cudaFree(sum));
    CUDA(cudaFree(p));
    puts("ok");
}
