#include "AnimeGamerPlayTurn.h"

#include "AnimeGamerSubsystem.h"
#include "Engine/Engine.h"
#include "Engine/GameInstance.h"
#include "Engine/World.h"

UAnimeGamerPlayTurn* UAnimeGamerPlayTurn::PlayTurn(UObject* WorldContextObject, FName GameName, const FString& Instruction)
{
	UAnimeGamerPlayTurn* const Turn = NewObject<UAnimeGamerPlayTurn>();
	Turn->RegisterWithGameInstance(WorldContextObject);
	Turn->Sentence = Instruction;
	UWorld* const World = GEngine->GetWorldFromContextObject(WorldContextObject, EGetWorldErrorMode::LogAndReturnNull);
	UGameInstance* const Instance = World != nullptr ? World->GetGameInstance() : nullptr;
	UAnimeGamerSubsystem* const Subsystem = Instance != nullptr ? Instance->GetSubsystem<UAnimeGamerSubsystem>() : nullptr;
	Turn->Game = Subsystem != nullptr ? Subsystem->GetGame(GameName) : nullptr;
	return Turn;
}

void UAnimeGamerPlayTurn::Activate()
{
	if (Game == nullptr)
	{
		OnError.Broadcast(TEXT("no_game"), TEXT("there is no game instance"), TEXT("play turns in a running game"));
		End();
		return;
	}
	Game->OnUnderstood.AddDynamic(this, &UAnimeGamerPlayTurn::HandleUnderstood);
	Game->OnState.AddDynamic(this, &UAnimeGamerPlayTurn::HandleState);
	Game->OnProgress.AddDynamic(this, &UAnimeGamerPlayTurn::HandleProgress);
	Game->OnFrame.AddDynamic(this, &UAnimeGamerPlayTurn::HandleFrame);
	Game->OnDone.AddDynamic(this, &UAnimeGamerPlayTurn::HandleDone);
	Game->OnError.AddDynamic(this, &UAnimeGamerPlayTurn::HandleError);
	Game->OnClipEnd.AddDynamic(this, &UAnimeGamerPlayTurn::HandleClipEnd);
	Ticket = Game->NextTicket();
	Game->Say(Sentence);
}

void UAnimeGamerPlayTurn::Cancel()
{
	if (Game != nullptr && !bDone)
	{
		Game->Cancel(); // On Error, when the server has stopped it
		return;
	}
	End();
}

// Several nodes may listen to one game ("say this instead"): each hears its own turn.
void UAnimeGamerPlayTurn::HandleUnderstood(const FAnimeGamerUnderstood& Understood)
{
	if (Game->Ticket() == Ticket)
	{
		OnUnderstood.Broadcast(Understood);
	}
}

void UAnimeGamerPlayTurn::HandleState(const FAnimeGamerState& State)
{
	if (Game->Ticket() == Ticket)
	{
		OnState.Broadcast(State);
	}
}

void UAnimeGamerPlayTurn::HandleProgress(float Fraction, float SecondsLeft)
{
	if (Game->Ticket() == Ticket)
	{
		OnProgress.Broadcast(Fraction, SecondsLeft);
	}
}

void UAnimeGamerPlayTurn::HandleFrame(UTexture2D* Texture) { OnFrame.Broadcast(Texture); }

void UAnimeGamerPlayTurn::HandleDone(int32 Turns, float Seconds)
{
	if (Game->Ticket() != Ticket)
	{
		return;
	}
	bDone = true;
	OnDone.Broadcast(Turns, Seconds);
}

void UAnimeGamerPlayTurn::HandleError(const FString& Code, const FString& Text, const FString& WhatToDo)
{
	if (Game->Ticket() == Ticket)
	{
		OnError.Broadcast(Code, Text, WhatToDo);
		End();
	}
}

void UAnimeGamerPlayTurn::HandleClipEnd()
{
	if (bDone)
	{
		End();
	}
}

void UAnimeGamerPlayTurn::End()
{
	if (Game != nullptr)
	{
		Game->OnUnderstood.RemoveAll(this);
		Game->OnState.RemoveAll(this);
		Game->OnProgress.RemoveAll(this);
		Game->OnFrame.RemoveAll(this);
		Game->OnDone.RemoveAll(this);
		Game->OnError.RemoveAll(this);
		Game->OnClipEnd.RemoveAll(this);
		Game = nullptr;
	}
	SetReadyToDestroy();
}
